package openapi

import (
	"net/http"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0.5": true, "gzip ; q=1": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "gzip;x": false, "gzip;q=": false, "*": false, "xgzip": false, "deflate": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: got %t", value, got)
		}
	}
	if !acceptsGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) {
		t.Error("a second header is not read")
	}
}
