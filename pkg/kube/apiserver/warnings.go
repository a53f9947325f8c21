package apiserver

import (
	"context"

	"github.com/go-logr/logr"
)

// Warnings receives the API server's warnings. Most are about manifests that no administrator of the cluster can change, so they are logged
// only for debugging.
type Warnings struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (Warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	logr.FromContextOrDiscard(ctx).V(1).Info("warning from the API server", "text", text)
}
