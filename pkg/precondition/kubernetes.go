package precondition

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/release"
)

// kubernetesVersion refuses a release that is not made for the version of the API server. On a cluster whose release does
// not bring its control plane, the two are updated by different people.
func kubernetesVersion(in Input) *Objection {
	text := in.Target.Kubernetes
	if text == "" {
		return nil
	}
	supported, err := release.ParseKubernetesRange(text)
	if err != nil {
		return &Objection{
			Reason:  "InvalidKubernetesVersions",
			Message: fmt.Sprintf("Release %s does not say for which versions of Kubernetes it is made: in its metadata, %v. Ask whoever made the release for one that can be read.", in.Target.Version, err),
		}
	}
	if in.Server.Err != nil {
		return unknownServer(in.Server.Err)
	}
	contained, err := supported.Contains(in.Server.Version)
	if err != nil {
		return &Objection{
			Reason:  "UnknownKubernetesVersion",
			Message: fmt.Sprintf("Release %s is made for Kubernetes %s, and whether the API server is of that cannot be told: %v.", in.Target.Version, text, err),
		}
	}
	if contained {
		return nil
	}
	return &Objection{
		Reason: "UnsupportedKubernetesVersion",
		Message: fmt.Sprintf("Release %s is made for Kubernetes %s, and the API server is Kubernetes %s. Update the API server to a version in this range first, or choose a release that is made for it (%s).",
			in.Target.Version, text, in.Server.Version, docs("kubernetesversion")),
	}
}

// unknownServer refuses until the API server can be asked; what has no answer now is asked again.
func unknownServer(err error) *Objection {
	return &Objection{Reason: "UnknownError", Message: fmt.Sprintf("What the API server serves is not known: %v", err)}
}
