package clusterversion

import "context"

// control is what an administrator has asked for where ClusterVersion has no field.
type control struct{}

// readControl reads what an administrator has asked for.
func (c *Reconciler) readControl(_ context.Context, _ *round) error { return nil }
