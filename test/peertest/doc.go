// Package peertest plays the peers of a kube-apiserver in tests: certificate
// authorities that issue what is asked for, right or wrong; TLS servers that
// answer, hang, refuse and break as a test says; and the part of an apiserver's
// handler chain that a forwarded request depends on.
//
// Everything started here ends with the test that started it.
package peertest
