// Package bulk carries the bytes of large batches of observations beside the log, from the disk of
// their producer to the memory of a GPU agent (docs/rfcs/0055-bulk-lane.md).
//
// A producer puts payloads into a Spool, a folder, and appends their descriptions (swarms.Bulk) to
// the log. A Server, in a process that lasts, sends the payloads of the folder to whoever has their
// tokens, and Sweep removes those that no replay needs any more. A Fetcher reads payloads over
// several connections and compares them with the checksums of the description.
//
// # What must hold
//
// A payload is on the disk before its description is in the log, and stays until the log is trimmed
// behind that entry. A file that is incomplete, because its writer was killed, is in no log.
//
// A Fetcher returns the bytes of the description or an error. Which replica of a log an agent reads
// and whether it has a lease does not matter: the bytes of an entry never change.
package bulk
