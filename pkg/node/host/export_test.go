//go:build linux

package host

import (
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
)

// Apply begins a change and executes its steps.
func (h *Host) Apply(name string, content config.Content, actions ...disruption.Action) error {
	if err := h.Begin(name, content, actions...); err != nil {
		return err
	}
	return h.Resume()
}
