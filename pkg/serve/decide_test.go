package serve

import (
	"testing"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

func TestDecideResource(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  origin
		route snapshot.Kind
		want  action
	}{
		{"local wins", fromClient, snapshot.Local, serveLocally},
		{"what only a peer serves is forwarded", fromClient, snapshot.Peers, forwardToPeer},
		{"so is what only an unreachable peer serves, to its last address", fromClient, snapshot.Unreachable, forwardToPeer},
		{"what may be served somewhere is no 404", fromClient, snapshot.Unknown, refuse},
		{"what no one serves is the local chain's 404", fromClient, snapshot.Absent, serveLocally},

		{"a peer's request is served where it is local", fromPeer, snapshot.Local, serveLocally},
		{"a peer's request makes no second hop", fromPeer, snapshot.Peers, refuseMarked},
		{"nor to an unreachable peer", fromPeer, snapshot.Unreachable, refuseMarked},
		{"a peer's request in doubt is refused", fromPeer, snapshot.Unknown, refuseMarked},
		{"a peer's request for what no one serves gets the 404 and the marker", fromPeer, snapshot.Absent, serveLocallyMarked},

		{"the own client is served locally", fromSelf, snapshot.Local, serveLocally},
		{"also what a peer serves", fromSelf, snapshot.Peers, serveLocally},
		{"also what an unreachable peer serves", fromSelf, snapshot.Unreachable, serveLocally},
		{"also in doubt", fromSelf, snapshot.Unknown, serveLocally},
		{"also what no one serves", fromSelf, snapshot.Absent, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideResource(tc.from, tc.route); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestDecideFacts(t *testing.T) {
	all := []document.Kind{document.Aggregated, document.Groups, document.Group, document.Resources}
	lists, others := []document.Kind{document.Groups, document.Group}, []document.Kind{document.Aggregated, document.Resources}
	for _, tc := range []struct {
		name  string
		from  origin
		alone bool
		kinds []document.Kind
		want  facts
	}{
		{"a client learns what all serve", fromClient, false, all, ofAll},
		{"profile=nopeer gets the local chain's documents", fromClient, true, others, ofChain},
		{"but not its lists of groups", fromClient, true, lists, ofOwn},
		{"a peer gets the local chain's documents", fromPeer, false, others, ofChain},
		{"but not its lists of groups", fromPeer, false, lists, ofOwn},
		{"whatever it asks for", fromPeer, true, lists, ofOwn},
		{"the own client gets all from the local chain", fromSelf, false, all, ofChain},
		{"whatever it asks for", fromSelf, true, all, ofChain},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, kind := range tc.kinds {
				if got := decideFacts(tc.from, tc.alone, kind); got != tc.want {
					t.Errorf("%s: got %d, want %d", kind, got, tc.want)
				}
			}
		})
	}
}

func TestDecideDocument(t *testing.T) {
	for _, tc := range []struct {
		name     string
		of       facts
		standing document.Standing
		want     action
	}{
		{"what is listed is served", ofAll, document.Listed, serveDocument},
		{"what can't be reached is not", ofAll, document.Stale, refuse},
		{"a backend answers for itself", ofAll, document.Backed, serveLocally},
		{"the local chain denies what no one lists", ofAll, document.Missing, serveLocally},
		{"what is not known is not denied", ofAll, document.InDoubt, refuse},
		{"what this server lists is served", ofOwn, document.Listed, serveDocument},
		{"what it does not list is denied, whatever the local chain says", ofOwn, document.Missing, denyDocument},
		{"unless what it lists is not known yet", ofOwn, document.InDoubt, refuse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideDocument(tc.of, tc.standing); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestDecideOpenAPI(t *testing.T) {
	for _, tc := range []struct {
		name         string
		from         origin
		alone, ready bool
		want         action
	}{
		{"a client gets the merged document", fromClient, false, true, serveDocument},
		{"profile=nopeer gets the local one", fromClient, true, true, serveLocally},
		{"also before the peers are known", fromClient, true, false, serveLocally},
		{"a merged document is never partial", fromClient, false, false, refuse},
		{"a peer gets the local document", fromPeer, false, true, serveLocally},
		{"the own client does, and need not wait", fromSelf, false, false, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideOpenAPI(tc.from, tc.alone, tc.ready); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
