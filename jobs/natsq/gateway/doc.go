// Package gateway lets clients submit jobs and follow them with plain NATS messages and JSON. It
// has the service, Gateway, and a client of it, Client. It also executes the rules of swarms:
// Submissions submits their jobs, and Emissions stores what they emit, each once for a rule and a
// round. Rules asks a gateway to submit a job, for processes that may not do so themselves.
//
// # Who may ask for what
//
// A client with an account of a tenant publishes requests on its own subjects. The server maps them
// to subjects with the name of the tenant, so the gateway trusts the tenant in a subject and
// nothing else in a request. All ids of a tenant begin with its name and "--". So a tenant reaches
// its own jobs only, and cannot occupy the ids of others.
//
// # What a gateway promises
//
// Any number of gateways may run; each request goes to one of them. A request has one answer, also
// when it is refused or when its gateway ends. A request that is repeated because its answer was
// lost has the same effect as one: an id is submitted once, and a cancellation or a retry of a job
// that is already where it should be changes nothing.
//
// A gateway bounds its work. At most allWorkers requests run at the same time, tenants take turns,
// and a request that waits for a result or a log gives its worker back. Beyond the bounds a request
// is refused at once, with a time after which the client may ask again.
package gateway
