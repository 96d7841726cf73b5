package represent

import (
	"net/http"
	"testing"
)

func TestAcceptsGzipInEveryForm(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0.5": true, "gzip ; q=1": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "gzip;x": false, "gzip;q=": false, "*": false, "xgzip": false, "deflate": false,
	} {
		if got := AcceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: got %t", value, got)
		}
	}
	if !AcceptsGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) {
		t.Error("a second header is not read")
	}
}
