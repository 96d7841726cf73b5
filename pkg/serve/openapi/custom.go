package openapi

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/utils/lru"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

const (
	// coreName is the document whose schemas those of custom resources share:
	// every server has it, with all that they can refer to beyond themselves.
	// Source: k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder.
	coreName = "api/v1"
	// hashTimeout bounds the time in which an index finds out the hashes of
	// custom resources' documents; what it could not is done the next time.
	hashTimeout = 10 * time.Second
	// keptCustom is how many of the documents are kept: the others are made when
	// they are asked for, which takes a millisecond.
	keptCustom = 64
)

// customV3 makes the documents of custom resources, which are this server's own
// but for the schemas that they share with built-in resources. Where members
// describe these differently, they are those of the member that wins.
type customV3 struct {
	// shared, hashes and waitedFor belong to who holds building.
	shared *sharedSchemas
	hashes map[customKey]string
	// waitedFor is the core document that was not there in time.
	waitedFor string

	mu        sync.Mutex
	documents *lru.Cache // *document by customKey
}

// customKey names what a document is made of: this server's document of that
// name and hash, and the schemas of the core document of another hash.
type customKey struct{ name, own, shared string }

// sharedSchemas are the schemas of the core document of that hash.
type sharedSchemas struct {
	hash    string
	schemas merge.Schemas
}

var errNoCore = errors.New("the core group of the member that comes first can't be read")

// describeCustom gives the documents of custom resources their hashes in an
// index. What can't be done now is tried again at the time that the index names.
func (s *Server) describeCustom(ctx context.Context, next *index, snap *snapshot.Snapshot) {
	names := next.namesOfCustom()
	if len(names) == 0 {
		s.custom.keep(nil, nil)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hashTimeout)
	defer cancel()
	shared, err := s.sharedOf(ctx, next, snap)
	hashes := map[customKey]string{}
	if next.shared = shared; shared != nil {
		for _, name := range names {
			hash, failed := s.hashOfCustom(ctx, next, name, hashes)
			if failed != nil {
				err = failed
				continue
			}
			entry := next.entries[name]
			entry.Hash = hash
			next.entries[name] = entry
			next.custom.Insert(name)
		}
	}
	s.custom.keep(shared, hashes)
	if err != nil {
		next.retry = s.clock.Now().Add(retryAfter)
		klog.FromContext(ctx).V(2).Info("OpenAPI of custom resources may differ from other servers'", "reason", err.Error())
	}
}

// namesOfCustom returns the documents that hold nothing but custom resources.
func (i *index) namesOfCustom() []string {
	var names []string
	for name, entry := range i.entries {
		if i.isLocal(entry.Sources) && len(entry.Sources[0].ServerIDs) == 1 && i.listings[i.serverID].isCustom(name) {
			names = append(names, name)
		}
	}
	return names
}

// sharedOf returns the schemas that documents of custom resources are to have,
// nil if they may stay as they are because all members agree. The error means
// that they are not those of the member that wins.
func (s *Server) sharedOf(ctx context.Context, next *index, snap *snapshot.Snapshot) (*sharedSchemas, error) {
	sources := next.entries[coreName].Sources
	if len(sources) < 2 {
		return nil, nil
	}
	if own := slices.IndexFunc(sources, next.isOwn); own >= 0 {
		sources = sources[:own+1] // those after it are not needed
	}
	limit := patience
	if s.custom.waitedFor == sources[0].Hash {
		limit = 0
	}
	available := s.available(ctx, next, snap, coreName, sources, limit)
	if len(available) == 0 {
		return nil, errNoCore
	}
	var late error
	s.custom.waitedFor = ""
	if available[0].Hash != sources[0].Hash {
		late, s.custom.waitedFor = errNoCore, sources[0].Hash
	}
	if last := s.custom.shared; last != nil && last.hash == available[0].Hash {
		return last, late
	}
	text, err := next.textOf(ctx, s, coreName, available[0])
	if err != nil {
		return nil, err
	}
	schemas, err := merge.SchemasV3(text)
	if err != nil {
		return nil, err
	}
	return &sharedSchemas{available[0].Hash, schemas}, late
}

// hashOfCustom returns the hash of a document, and adds it to the hashes.
func (s *Server) hashOfCustom(ctx context.Context, next *index, name string, hashes map[customKey]string) (string, error) {
	own := next.entries[name].Sources[0]
	key := customKey{name, own.Hash, next.shared.hash}
	hash, known := s.custom.hashes[key]
	if !known {
		text, err := next.textOf(ctx, s, name, own)
		if err != nil {
			return "", err
		}
		if text, err = merge.OpenAPIV3Custom(text, next.shared.schemas); err != nil {
			return "", err
		}
		hash = hashOf(text)
	}
	hashes[key] = hash
	return hash, nil
}

// keep drops what no document is made of any more.
func (c *customV3) keep(shared *sharedSchemas, hashes map[customKey]string) {
	c.shared, c.hashes = shared, hashes
	if shared == nil {
		c.documents.Clear()
	}
}

// serveCustom answers with a document of custom resources, made of this
// server's as it is now: that may be younger than the index.
func (x *exchange) serveCustom(ctx context.Context) {
	name, shared := x.request.name, x.index.shared
	head, err := x.Server.local.fetch(ctx, http.MethodHead, url.URL{Path: prefixV3 + name}, maxBytes)
	if err != nil || head.etag == "" {
		x.local.ServeHTTP(x.w, x.r)
		return
	}
	key := customKey{name, head.etag, shared.hash}
	ctx = context.WithoutCancel(ctx) // it is made for all who wait for it
	d := x.custom.document(key, func() ([]byte, error) {
		got, err := x.Server.local.fetch(ctx, http.MethodGet, urlOf(name, head.etag), maxBytes)
		if err != nil {
			return nil, err
		}
		return merge.OpenAPIV3Custom(got.body, shared.schemas)
	})
	if _, err := d.content(); err != nil {
		x.custom.documents.Remove(key)
		x.giveUp(err, x.index.entries[name])
		return
	}
	x.send(d, subresourceDocument)
}

// document returns the document of that key, which build makes.
func (c *customV3) document(key customKey, build func() ([]byte, error)) *document {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, found := c.documents.Get(key); found {
		return d.(*document)
	}
	d := newDocument("", build, handler3.ToV3ProtoBinary)
	c.documents.Add(key, d)
	return d
}

// hashOf is the hash of a document as a stock server makes it.
func hashOf(text []byte) string { return fmt.Sprintf("%X", sha512.Sum512(text)) }
