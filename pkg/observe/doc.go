// Package observe is the news' wing: it turns what is known of the control
// plane into snapshots.
//
// Its rooms follow one source each: lease the members, discovery their
// documents, exclusion what must not be taken from a peer. They only raise a
// flag when something changed. The [Observer]'s loop then reads the whole
// state, hands it to [Build], which is pure, and publishes the snapshot that
// comes out. No one else publishes, so the newest news always wins, and news
// that came too fast to be looked at one by one costs one look.
package observe
