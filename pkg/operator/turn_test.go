package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecide(t *testing.T) {
	const (
		a      = "registry.example/release@sha256:aaaa"
		b      = "registry.example/release@sha256:bbbb"
		broken = "registry.example/release@sha256:cccc"
		mirror = "mirror.example/copy@sha256:aaaa"
	)
	for _, tt := range []struct {
		name string
		in   situation
		want turn
	}{
		{"leads outside of the cluster, whatever the Deployment says", situation{own: a, template: b, desired: b}, contend},
		{"leads a cluster that says nothing yet", situation{inside: true, own: a, template: a}, contend},
		{"leads the release that the cluster runs", situation{inside: true, own: a, template: a, desired: a}, contend},
		{"is the replica of the target, and leads while the update goes on", situation{inside: true, own: b, template: b, desired: b}, contend},
		{"is the replica of the target, and the status does not say so yet", situation{inside: true, own: b, template: b, desired: a}, contend},
		{"is of the old release once the Deployment is of the target", situation{inside: true, own: a, template: b, desired: b}, standAside},
		{"is of the target once a rollback has set the Deployment back", situation{inside: true, own: b, template: a, desired: a}, standAside},
		{"is of the old release while the target is not applied yet", situation{inside: true, own: a, template: a, desired: b}, contend},
		{"repairs a Deployment that was edited by hand", situation{inside: true, own: a, template: broken, desired: a}, contend},
		{"is of the old release, and the target's Deployment was edited by hand", situation{inside: true, own: a, template: broken, desired: b}, standAside},
		{"knows the release by its digest alone", situation{inside: true, own: a, template: mirror, desired: b}, contend},
		{"makes a Deployment again that was deleted", situation{inside: true, own: a, desired: b}, contend},
		{"cannot tell what the cluster asks for", situation{inside: true, own: a, template: b}, standAside},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, decide(tt.in)) })
	}
}
