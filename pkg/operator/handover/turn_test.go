package handover

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReplacedReplicaStandsAside(t *testing.T) {
	const (
		a      = "registry.example/release@sha256:aaaa"
		b      = "registry.example/release@sha256:bbbb"
		broken = "registry.example/release@sha256:cccc"
		mirror = "mirror.example/copy@sha256:aaaa"
	)
	for _, tt := range []struct {
		name string
		in   situation
		want bool
	}{
		{"contends in a cluster without a status", situation{own: a, template: a}, true},
		{"contends as the release that the cluster runs", situation{own: a, template: a, desired: a}, true},
		{"contends as the target during the update", situation{own: b, template: b, desired: b}, true},
		{"contends as the target before the status shows it", situation{own: b, template: b, desired: a}, true},
		{"stands aside as the old release after the Deployment was updated", situation{own: a, template: b, desired: b}, false},
		{"stands aside as the target after the Deployment was rolled back", situation{own: b, template: a, desired: a}, false},
		{"contends as the old release until the target is applied", situation{own: a, template: a, desired: b}, true},
		{"contends to repair a manually edited Deployment", situation{own: a, template: broken, desired: a}, true},
		{"stands aside as the old release if the target's Deployment was edited manually", situation{own: a, template: broken, desired: b}, false},
		{"compares releases by digest", situation{own: a, template: mirror, desired: b}, true},
		{"contends to recreate a deleted Deployment", situation{own: a, desired: b}, true},
		{"stands aside if the desired release is unknown", situation{own: a, template: b}, false},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, tt.in.contends()) })
	}
}
