package cluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd is a one-member etcd in this process.
type etcd struct {
	server *embed.Etcd
	url    string
}

// startEtcd starts an etcd on loopback and waits until it serves. It keeps its
// data in dir/etcd, without fsync: a crash of the machine loses them.
func startEtcd(ctx context.Context, dir string) (*etcd, error) {
	client, err := freeURL()
	if err != nil {
		return nil, err
	}
	peer, err := freeURL()
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return &etcd{server: server, url: client.String()}, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	return nil, fmt.Errorf("waiting for etcd: %w", err)
}

// stop ends the etcd and every goroutine of it.
func (e *etcd) stop() { e.server.Close() }

func freeURL() (url.URL, error) {
	port, err := freePort(loopback)
	return url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, strconv.Itoa(port))}, err
}
