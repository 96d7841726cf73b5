// Package upgrade takes three kube-apiservers from one Kubernetes minor to the
// next and back, one by one, while clients work with them through a load
// balancer, and counts what the clients get wrong.
//
// The servers and their etcd are those of package cluster, the namespaces are
// emptied by the real kube-controller-manager, and the clients are client-go's.
// The files, in the order of a run:
//
//	balancer.go    the load balancer: TCP, round robin, health checks
//	epoch.go       since when, and until when, someone serves what is new
//	client.go      clients of the balancer, each with connections of its own
//	load.go        what clients do, and how often
//	objects.go     what they read and write
//	informers.go   caches that must miss nothing
//	walk.go        legacy discovery; discovery.go: aggregated discovery
//	namespaces.go  namespaces that come and go with all that is in them
//	count.go       what went wrong, by kind
//	roll.go        the upgrade itself
//	report.go      the counts of several runs as a table
package upgrade
