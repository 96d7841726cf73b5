package represent

import (
	"net/http"
	"testing"
)

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   bool
	}{
		{"no header", nil, false},
		{"the tag", []string{`"TAG"`}, true},
		{"a weak tag", []string{`W/"TAG"`}, true},
		{"one of a list", []string{`"a", W/"b" ,"TAG"`}, true},
		{"a second header", []string{`"a"`, `"TAG"`}, true},
		{"anything", []string{"*"}, true},
		{"another tag", []string{`"OTHER", W/"TAGS"`}, false},
		{"without quotes", []string{"TAG"}, false},
		{"empty", []string{""}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Matches(http.Header{"If-None-Match": test.values}, `"TAG"`); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAcceptsGzip(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   bool
	}{
		{"no header", nil, false},
		{"gzip", []string{"gzip"}, true},
		{"in a list", []string{"br, GZIP ,deflate"}, true},
		{"a second header", []string{"br", "gzip"}, true},
		{"with a weight", []string{"br;q=1.0, gzip; q=0.8"}, true},
		{"refused", []string{"gzip;q=0"}, false},
		{"refused with digits", []string{"gzip; Q=0.000"}, false},
		{"with a weight that is none", []string{"gzip;q=x"}, false},
		{"another coding", []string{"identity, br, xgzip"}, false},
		{"empty", []string{""}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := AcceptsGzip(http.Header{"Accept-Encoding": test.values}); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
