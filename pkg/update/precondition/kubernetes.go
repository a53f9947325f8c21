package precondition

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/release"
)

// kubernetesVersion rejects a release that does not support the API server's version. If the cluster's release does not contain the control
// plane, different people may update the two.
func kubernetesVersion(in Input) *Objection {
	text := in.Target.Kubernetes
	if text == "" {
		return nil
	}
	supported, err := release.ParseKubernetesRange(text)
	if err != nil {
		return &Objection{
			Reason:  "InvalidKubernetesVersions",
			Message: fmt.Sprintf("The metadata of release %s contains an invalid range of Kubernetes versions: %v. Report this to the publisher of the release.", in.Target.Version, err),
		}
	}
	if in.Server.Err != nil {
		return unknownServer(in.Server.Err)
	}
	contained, err := supported.Contains(in.Server.Version)
	if err != nil {
		return &Objection{
			Reason:  "UnknownKubernetesVersion",
			Message: fmt.Sprintf("Release %s requires Kubernetes %s, but the version of the API server is unknown: %v.", in.Target.Version, text, err),
		}
	}
	if contained {
		return nil
	}
	return &Objection{
		Reason: "UnsupportedKubernetesVersion",
		Message: fmt.Sprintf("Release %s requires Kubernetes %s, but the API server runs Kubernetes %s. Update the API server to a version in this range first, or choose a release that supports its version (%s).",
			in.Target.Version, text, in.Server.Version, docs("kubernetesversion")),
	}
}

// unknownServer blocks until the API server responds. The caller repeats the check.
func unknownServer(err error) *Objection {
	return &Objection{Reason: "UnknownError", Message: fmt.Sprintf("Cannot read the APIs of the API server: %v", err)}
}
