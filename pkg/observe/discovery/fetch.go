package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

const (
	// fetchTimeout bounds one fetch of a document, both lists together.
	fetchTimeout = 5 * time.Second
	// maxListBytes bounds the size of one list, maxObjects and maxElements what is
	// made of it: an empty object takes two bytes there and some hundred here.
	// A resource with a subresource takes about four objects and thirty elements.
	maxListBytes = 64 << 20
	maxObjects   = 500_000
	maxElements  = 4_000_000
)

// accept asks for what a server alone serves. Servers that do not know the
// profile ignore it and have no other view; servers before 1.30 have v2beta1.
const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer," +
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

// Server is a server that can be asked for its document.
type Server struct {
	// ID is its server ID, Incarnation the holder identity of its lease.
	ID, Incarnation string
	// Host is the host:port that requests are sent to.
	Host string
	// Transport carries the requests; it adds what authenticates this server, and
	// takes no answer from another one than the request's transport.ServerHeader says.
	Transport http.RoundTripper
}

// fetch asks the server for its document. What has not changed since last,
// which may be nil and may describe an earlier incarnation, is not sent again.
func (s Server) fetch(ctx context.Context, last *snapshot.Document, clock clock.PassiveClock) (*snapshot.Document, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errors.New("no complete answer in "+fetchTimeout.String()))
	defer cancel()
	next := &snapshot.Document{ServerID: s.ID, Incarnation: s.Incarnation, Checked: clock.Now()}
	for _, path := range []snapshot.Path{snapshot.PathAPI, snapshot.PathAPIs} {
		var known *snapshot.List
		if last != nil {
			known = path.Of(last)
		}
		list, err := s.fetchList(ctx, path, known)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, fmt.Errorf("discovery of %s at %s: %w", s.ID, path, err)
		}
		*path.Of(next) = *list
	}
	return next, nil
}

func (s Server) fetchList(ctx context.Context, path snapshot.Path, known *snapshot.List) (*snapshot.List, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Host+path.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set(transport.ServerHeader, s.ID)
	if known != nil && known.ServerETag != "" {
		request.Header.Set("If-None-Match", strconv.Quote(known.ServerETag))
	}
	response, err := s.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && known != nil:
		return known, nil
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered with status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxListBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxListBytes {
		return nil, fmt.Errorf("the document is larger than %d bytes", maxListBytes)
	}
	return decode(path, response.Header, body)
}

// decode reads a list as a server sent it for the path.
func decode(path snapshot.Path, header http.Header, body []byte) (*snapshot.List, error) {
	if err := checkContentType(header.Get("Content-Type")); err != nil {
		return nil, err
	}
	if bytes.Count(body, []byte("{")) > maxObjects || bytes.Count(body, []byte(",")) > maxElements {
		return nil, fmt.Errorf("the document has more than %d objects or %d elements", maxObjects, maxElements)
	}
	// v2beta1 differs from v2 in its name alone.
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := utiljson.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the document: %w", err)
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("the document is of kind %q, not APIGroupDiscoveryList", list.Kind)
	}
	if err := checkGroups(path, list.Items); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return snapshot.NewList(hex.EncodeToString(sum[:]), serverETag(header), list.Items), nil
}

// checkGroups refuses groups that can't be where they are: the core group alone
// has no name, and is alone at /api.
func checkGroups(path snapshot.Path, groups []apidiscoveryv2.APIGroupDiscovery) error {
	seen := make(map[string]bool, len(groups))
	for _, group := range groups {
		if (group.Name == "") != (path == snapshot.PathAPI) {
			return fmt.Errorf("group %q does not belong there", group.Name)
		}
		if seen[group.Name] {
			return fmt.Errorf("group %q is there twice", group.Name)
		}
		seen[group.Name] = true
	}
	return nil
}

func checkContentType(contentType string) error {
	mediaType, params, err := mime.ParseMediaType(contentType)
	known := params["v"] == "v2" || params["v"] == "v2beta1"
	if err != nil || mediaType != "application/json" || params["g"] != "apidiscovery.k8s.io" || params["as"] != "APIGroupDiscoveryList" || !known {
		return fmt.Errorf("content type %q is not that of aggregated discovery", contentType)
	}
	return nil
}

// serverETag is the entity tag in the header, without quotes, or empty.
func serverETag(header http.Header) string {
	tag, err := strconv.Unquote(header.Get("ETag"))
	if err != nil {
		return ""
	}
	return tag
}
