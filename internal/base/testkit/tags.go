package testkit

// ReleaseTags are the build tags of releases, of the Makefile and of the gate. The tags of gRPC and
// Arrow leave out parts of dependencies that no command uses, netgo and osusergo leave out C code,
// and connectors adds the clients of object stores, databases and brokers.
const ReleaseTags = "disable_grpc_modules,grpcnotrace,netgo,osusergo,arrow_json_stdlib,connectors"
