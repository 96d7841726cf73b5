// Package cluster runs a whole Kubernetes control plane of mixed versions on
// one machine: an embedded etcd and any number of kube-apiserver processes on
// loopback, with their own certificate authorities, certificates, users and
// kubeconfigs.
//
// It serves cmd/mixed-cluster, the end-to-end tests and people who want to see
// servers of several versions side by side:
//
//	c, err := cluster.Start(ctx, cluster.Config{Progress: t.Logf})
//	defer c.Stop()
//	servers, err := c.StartServers(ctx,
//		cluster.ServerConfig{Name: "new", Binary: "bin/kube-apiserver-v1.37"},
//		cluster.ServerConfig{Name: "old", Binary: "bin/kube-apiserver-v1.36"})
//	client := kubernetes.NewForConfigOrDie(servers[1].AdminConfig())
//
// A server may be stopped, killed, frozen, thawed and restarted as another
// version at the same address, and a kube-controller-manager may run beside them.
// Every process dies with the one that started it, however that ends.
//
// A server's ID must be its own. This project's binaries take it as a flag;
// stock ones derive it from the host name, and so each gets a host name of its
// own in a UTS namespace, which takes Linux and root.
//
// The layout of the directory:
//
//	<server>.kubeconfig  admin access to one server
//	<server>.log         what the server wrote, all its runs
//	<server>.audit.log   its audit log, if asked for
//	<name>.kubeconfig    a controller manager's access, <name>.log what it wrote
//	etcd.log, etcd/      log and data of etcd
//	pki/                 authorities, certificates and keys
package cluster
