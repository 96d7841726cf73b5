// Package serve is the requests' wing: it decides, for every request that
// reached the end of the server's handler chain, who answers it.
//
// A request's way leads down one file, or one package, a step: the filter
// (filter.go) loads the snapshot, asks it for the route, and lets decide
// (decide.go) choose what to do; then the request goes on to the local chain,
// to package forward, document or openapi.
package serve
