// Package represent has what serving a document's representations takes: which
// one a request accepts or has already, and how it is compressed.
package represent

import (
	"net/http"
	"strconv"
	"strings"
)

// Matches reports whether an If-None-Match header names the quoted entity tag.
// The comparison is weak, as RFC 9110 wants it (section 13.1.2).
func Matches(header http.Header, etag string) bool {
	for tag := range elements(header["If-None-Match"]) {
		if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}

// AcceptsGzip reports whether an Accept-Encoding header names gzip with a weight
// that is not zero (RFC 9110, section 12.5.3).
func AcceptsGzip(header http.Header) bool {
	for coding := range elements(header["Accept-Encoding"]) {
		name, weight, weighted := strings.Cut(coding, ";")
		if strings.EqualFold(strings.Trim(name, " \t"), "gzip") {
			return !weighted || !isZero(weight)
		}
	}
	return false
}

// isZero reports whether a weight such as "q=0.0" is zero or no weight at all.
func isZero(weight string) bool {
	name, value, _ := strings.Cut(strings.Trim(weight, " \t"), "=")
	q, err := strconv.ParseFloat(value, 64)
	return !strings.EqualFold(name, "q") || err != nil || q <= 0
}

// elements yields the elements of a header that is a list.
func elements(values []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, value := range values {
			for element := range strings.SplitSeq(value, ",") {
				if !yield(strings.Trim(element, " \t")) {
					return
				}
			}
		}
	}
}
