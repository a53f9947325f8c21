package target

// Outcome is the result of an installation for one object.
type Outcome string

// Outcomes of an installation.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Kept      Outcome = "kept"
)

// Result is the outcome for one object.
type Result struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	Outcome    Outcome `json:"outcome"`
	// Message adds details for the reader; it may be empty.
	Message string `json:"message,omitempty"`
}

// String reads like "Service openshift-cluster-version/cluster-version-operator".
func (r Result) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Refusal is a deliberate rejection: the cluster's state does not allow the installer to continue.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }
