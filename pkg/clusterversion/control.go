package clusterversion

import "context"

// Control tells what an administrator has asked for where ClusterVersion has no field, and which of its fields the
// cluster knows.
type Control interface {
	// Look returns what watches have delivered last. It makes no request.
	Look() Controls
}

// Controls are one look at a Control.
type Controls struct {
	Schema Schema
}

// Schema tells which fields the cluster's definition of ClusterVersion has that only some of its variants have. The API
// server drops what the definition lacks, so such a field is neither read nor written.
type Schema struct {
	// Mode is spec.desiredUpdate.mode, AcceptRisks is spec.desiredUpdate.acceptRisks.
	Mode, AcceptRisks bool
	// ConditionalUpdateRisks is the list in status; RiskNames and RiskConditions are the fields of status.conditionalUpdates
	// that refer to it.
	ConditionalUpdateRisks, RiskNames, RiskConditions bool
	// Capabilities are the names of capabilities that it takes, sorted, with commas around each; empty: any.
	Capabilities string
}

// Names reports whether status may name a capability.
func (s Schema) Names(capability configv1.ClusterVersionCapability) bool {
	return s.Capabilities == "" || strings.Contains(s.Capabilities, ","+string(capability)+",")
}

// control is what an administrator has asked for where ClusterVersion has no field.
type control struct {
	schema Schema
}

// readControl reads what an administrator has asked for.
func (c *Reconciler) readControl(_ context.Context, r *round) error {
	if c.options.Control == nil {
		return nil
	}
	look := c.options.Control.Look()
	r.control = control{schema: look.Schema}
	return nil
}
