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
		blind bool
		want  action
	}{
		{"local wins", fromClient, snapshot.Local, false, serveLocally},
		{"what only a peer serves is forwarded", fromClient, snapshot.Peers, false, forwardToPeer},
		{"so is what only an unreachable peer serves, to its last address", fromClient, snapshot.Unreachable, false, forwardToPeer},
		{"what may be served somewhere is no 404", fromClient, snapshot.Unknown, false, refuse},
		{"what no one serves is the local chain's 404", fromClient, snapshot.Absent, false, serveLocally},

		{"a peer's request is served where it is local", fromPeer, snapshot.Local, false, serveLocally},
		{"a peer's request makes no second hop", fromPeer, snapshot.Peers, false, refuseMarked},
		{"nor to an unreachable peer", fromPeer, snapshot.Unreachable, false, refuseMarked},
		{"a peer's request in doubt is refused", fromPeer, snapshot.Unknown, false, refuseMarked},
		{"a peer's request for what no one serves gets the 404 and the marker", fromPeer, snapshot.Absent, false, serveLocallyMarked},

		{"the own client is served locally", fromSelf, snapshot.Local, false, serveLocally},
		{"also what a peer serves", fromSelf, snapshot.Peers, false, serveLocally},
		{"also what an unreachable peer serves", fromSelf, snapshot.Unreachable, false, serveLocally},
		{"also in doubt", fromSelf, snapshot.Unknown, false, serveLocally},
		{"also what no one serves", fromSelf, snapshot.Absent, false, serveLocally},

		{"a blind server serves what no one else does", fromClient, snapshot.Absent, true, serveLocally},
		{"and all else that it can", fromClient, snapshot.Peers, true, serveOrRefuse},
		{"also if who else serves it can't be reached", fromClient, snapshot.Unreachable, true, serveOrRefuse},
		{"or is not known", fromClient, snapshot.Unknown, true, serveOrRefuse},
		{"an excluded resource is its own, blind or not", fromClient, snapshot.Local, true, serveLocally},
		{"a blind server marks no answer to a peer: it may be about an object", fromPeer, snapshot.Absent, true, serveLocally},
		{"nor does it refuse what it may serve", fromPeer, snapshot.Peers, true, serveLocally},
		{"the own client of a blind server is served locally", fromSelf, snapshot.Unknown, true, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideResource(tc.from, tc.route, tc.blind); got != tc.want {
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

func TestDecideBlind(t *testing.T) {
	for _, tc := range []struct {
		name      string
		of        facts
		elsewhere bool
		want      action
	}{
		{"what no one else lists is the local chain's", ofAll, false, serveLocally},
		{"what someone else lists can't be merged", ofAll, true, refuse},
		{"what this server serves alone is the local chain's", ofOwn, true, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideBlind(tc.of, tc.elsewhere); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
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
