package transport

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestFirstToExpire(t *testing.T) {
	now := time.Unix(100, 0)
	until := func(from, to int64) *x509.Certificate {
		return &x509.Certificate{NotBefore: time.Unix(from, 0), NotAfter: time.Unix(to, 0)}
	}
	for _, test := range []struct {
		name  string
		certs []*x509.Certificate
		want  int64
	}{
		{"the first of two", []*x509.Certificate{until(0, 300), until(0, 200)}, 200},
		{"one that has expired does not count", []*x509.Certificate{until(0, 50), until(0, 200)}, 200},
		{"one that is to come does not count", []*x509.Certificate{until(150, 160), until(0, 200)}, 200},
		{"the last, if all have expired", []*x509.Certificate{until(0, 20), until(0, 50), until(0, 10)}, 50},
		{"valid to the last moment", []*x509.Certificate{until(0, 100), until(0, 200)}, 100},
	} {
		if got := firstToExpire(test.certs, now).Unix(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
