package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that Linux (from 32768) and macOS (from
// 49152) give to outgoing connections, so that a server that restarts finds
// its port free.
const firstPort, lastPort = 20000, 32000

var givenPorts sync.Map

// freePort returns a TCP port that is free at the IP address and was not given
// out before by this process.
func freePort(ip string) (int, error) {
	var lastErr error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			lastErr = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free TCP port at %s from %d to %d: %w", ip, firstPort, lastPort, lastErr)
}
