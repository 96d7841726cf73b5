package upgrade

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// beginWalking starts a client that knows legacy discovery only: it reads /apis,
// and then every group-version that it was told of. Most clients that are not
// client-go do so, and many give up all of it over a single 404.
func (l *Load) beginWalking(ctx context.Context) error {
	c, err := l.newRestlessClient()
	if err != nil {
		return err
	}
	l.every(ctx, walkPeriod, func() {
		err := l.walk(ctx, c)
		if ctx.Err() != nil {
			return
		}
		l.counts.Add(Walks)
		if err != nil && !l.epoch.Over() {
			l.counts.Note(FailedWalks, "%v", err)
		}
	})
	return nil
}

func (l *Load) walk(ctx context.Context, c *client) error {
	var groups metav1.APIGroupList
	if err := read(ctx, c, "/apis", &groups); err != nil {
		return err
	}
	paths := []string{"/api/v1"}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			paths = append(paths, "/apis/"+version.GroupVersion)
		}
	}
	for _, path := range paths {
		var resources metav1.APIResourceList
		if err := read(ctx, c, path, &resources); err != nil {
			return err
		}
	}
	return nil
}

// read decodes the JSON at path.
func read(ctx context.Context, c *client, path string, into any) error {
	body, err := c.get(ctx, path, "application/json")
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
