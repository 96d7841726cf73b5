package snapshot

import (
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// Document is what one server alone serves: its discovery of /api and /apis
// with profile=nopeer, decoded. It is immutable.
type Document struct {
	// ServerID is the server that the document describes.
	ServerID string
	// Incarnation is the holder identity of the server's identity lease when
	// the document was asked for, empty for the local server.
	Incarnation string
	// Checked is when the request that brought the document, or the last 304
	// that confirmed it, was sent.
	Checked time.Time
	// Core is the document at /api, Groups the one at /apis.
	Core, Groups List
}

// List is one aggregated discovery list as a server sent it.
type List struct {
	// ETag is a hash of the content, made by this server: lists with equal tags
	// are equal, whoever sent them.
	ETag string
	// ServerETag is the entity tag that the server sent, without quotes, empty if
	// it sent none. It is good for asking that server again, and for nothing else.
	ServerETag string
	// Items are the list's groups in the server's order.
	Items []apidiscoveryv2.APIGroupDiscovery

	// resources are made of the items by NewList. Without them each snapshot makes
	// some.
	resources resources
}

// NewList returns a list of the groups, which belong to it from then on. It makes
// here, once, what every snapshot looks up: who reads a large list pays for it,
// not who publishes.
func NewList(etag, serverETag string, groups []apidiscoveryv2.APIGroupDiscovery) *List {
	return &List{ETag: etag, ServerETag: serverETag, Items: groups, resources: newResources(groups)}
}

// indexed returns what the list names, by resource.
func (l *List) indexed() resources {
	if l.resources != nil {
		return l.resources
	}
	return newResources(l.Items)
}

// SameContent reports whether d and o describe the same server with the same
// content, whenever they were checked.
func (d *Document) SameContent(o *Document) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.ServerID == o.ServerID && d.Core.ETag == o.Core.ETag && d.Groups.ETag == o.Groups.ETag
}
