package openapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"peerproxy.internal/pkg/transport"
)

const (
	// fetchTimeout bounds the fetch of one document.
	fetchTimeout = 5 * time.Second
	// maxBytes bounds the size of one document, maxIndexBytes that of an index:
	// ten thousand custom resource definitions make one of 3 MB.
	maxBytes      = 64 << 20
	maxIndexBytes = 16 << 20
)

// acceptAlone asks for what a server alone serves. Stock servers ignore the
// profile, and have no other view.
const acceptAlone = "application/json;profile=nopeer"

// origin is a server that can be asked.
type origin struct {
	serverID  string // empty for this server
	host      string
	transport http.RoundTripper
}

// answer is a document as a server sent it.
type answer struct {
	// etag is the entity tag, without quotes; empty where there is none.
	etag string
	body []byte
}

// statusError means that a server did answer, but not with the document.
type statusError struct{ status int }

func (e *statusError) Error() string { return "answered with status " + strconv.Itoa(e.status) }

var errTooLarge = errors.New("the document is too large")

// fetch asks for a document. Redirects are not followed: they name another
// document.
func (o origin) fetch(ctx context.Context, method string, at url.URL, limit int64) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errors.New("no complete answer in "+fetchTimeout.String()))
	defer cancel()
	got, err := o.roundTrip(ctx, method, at, limit)
	if err == nil {
		return got, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return nil, fmt.Errorf("%s: %w", at.Path, err)
}

func (o origin) roundTrip(ctx context.Context, method string, at url.URL, limit int64) (*answer, error) {
	at.Scheme, at.Host = "https", o.host
	request, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", acceptAlone)
	if o.serverID != "" {
		request.Header.Set(transport.ServerHeader, o.serverID)
	}
	response, err := o.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &statusError{response.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > limit:
		return nil, errTooLarge
	}
	return &answer{etag: unquoted(response.Header.Get("ETag")), body: body}, checkType(response.Header)
}

// checkType refuses what is not JSON. A stock server calls its index plain text.
func checkType(header http.Header) error {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" && mediaType != "text/plain" {
		return fmt.Errorf("content type %q is not JSON", header.Get("Content-Type"))
	}
	return nil
}

func unquoted(etag string) string {
	tag, err := strconv.Unquote(strings.TrimPrefix(etag, "W/"))
	if err != nil {
		return ""
	}
	return tag
}

// urlOf is where a server has a document of its index.
func urlOf(name, hash string) url.URL {
	return url.URL{Path: prefixV3 + name, RawQuery: url.Values{hashOption: {hash}}.Encode()}
}
