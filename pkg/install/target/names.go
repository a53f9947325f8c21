package target

import (
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Names of the parts of an installation.
const (
	// Operator is the name of the operator's Deployment, its container, its service account and the component of their
	// manifests.
	Operator = api.OperatorDeployment
	// PodLabel is the label that identifies the operator's pods; its value is Operator.
	PodLabel = "k8s-app"
	// Manager is the field manager of the administrator's choices. They survive updates, because the operator applies
	// releases under its own name.
	Manager = api.InstallManager
	// CRDKind is the kind of a CRD.
	CRDKind = "CustomResourceDefinition"
)

// NeededCRDs returns the CRDs that the operator needs to start.
func NeededCRDs() []string {
	return []string{"clusterversions.config.openshift.io", "clusteroperators.config.openshift.io"}
}

// CRD returns the ID of a CRD.
func CRD(name string) manifest.ID {
	return manifest.ID{Group: "apiextensions.k8s.io", Kind: CRDKind, Name: name}
}

// OperatorCRDs returns the CRDs whose objects only the operator uses.
func OperatorCRDs() []string {
	return []string{"releasestatuses.cvo.cluster-version.github.io", "releaserollouts.cvo.cluster-version.github.io", NeededCRDs()[0]}
}
