package finding

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Rule is a linting rule. IDs never change, so that lists of disabled rules stay valid.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Summary describes a correct release.
	Summary string `json:"summary"`
	// Why describes the consequence of breaking the rule.
	Why string `json:"why"`
	// Remedy is advice for the author.
	Remedy string `json:"remedy"`
}

// Rules returns all rules, sorted by ID.
func Rules() []Rule {
	all := slices.Concat(fileRules(), inclusionRules(), kindRules(), objectRules(), imageRules(), releaseRules())
	sorted.By(all, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func rulesByID() map[string]Rule {
	byID := map[string]Rule{}
	for _, r := range Rules() {
		byID[r.ID] = r
	}
	return byID
}

// RuleByID returns the rule with an ID; ok is false if there is none.
func RuleByID(id string) (Rule, bool) {
	rule, ok := rulesByID()[id]
	return rule, ok
}

// RuleIDs returns the IDs of all rules, sorted.
func RuleIDs() []string { return slices.Sorted(maps.Keys(rulesByID())) }

// CheckIDs returns an error for the first unknown ID.
func CheckIDs(ids []string) error {
	for _, id := range ids {
		if _, ok := RuleByID(id); !ok {
			return fmt.Errorf("unknown rule %q: list the rules with cvo release lint --rules", id)
		}
	}
	return nil
}

func fileRules() []Rule {
	return []Rule{
		{
			ID: "component", Severity: Error, Summary: "A folder of components can become a release.",
			Why: "cvo release new rejects the folder.", Remedy: "correct the folder, and check it with cvo release new --dry-run",
		},
		{
			ID: "component-input", Severity: Warning, Summary: "A folder of components has all images and versions that its manifests use.",
			Why:    "cvo release new rejects the folder without arguments for the missing images and versions. Lint reads no images, which may also report the version.",
			Remedy: "add what is missing, or skip this rule if you pass it to cvo release new",
		},
		{
			ID: "syntax", Severity: Error, Summary: "Every document parses.",
			Why: "If a file does not parse, clusters reject the whole release.", Remedy: "correct the YAML or JSON at this line",
		},
		{
			ID: "not-text", Severity: Error, Summary: "Files are UTF-8 text without NUL bytes.",
			Why: "A cluster rejects the whole release.", Remedy: "save the file as UTF-8",
		},
		{
			ID: "byte-order-mark", Severity: Warning, Summary: "Files do not start with a byte order mark.",
			Why:    "Clusters skip a byte order mark, but some tools then read JSON as YAML and lose the first key.",
			Remedy: "save the file as UTF-8 without a byte order mark",
		},
		{
			ID: "template", Severity: Error, Summary: "Files in " + "manifests/" + " can be rendered.",
			Why:    "A running operator skips a file that it cannot render, with only a warning.",
			Remedy: "use only text, conditions and the values .ReleaseImage, .ClusterProfile and index .Images \"name\"",
		},
		{
			ID: "file-name", Severity: Warning, Summary: "Files are named 0000_NN_<component>_<rest>.",
			Why:    "The name determines when a file is applied and what waits for it.",
			Remedy: "rename the file to 0000_NN_<component>_<rest>, where NN is the runlevel in two digits, without special characters",
		},
		{
			ID: "file-ignored", Severity: Warning, Summary: "Every file is applied.",
			Why:    "Files with other extensions and files in subfolders are part of the image but have no effect.",
			Remedy: "give the file the extension .yaml and move it to the top of the folder, or remove it from the component's image",
		},
		{
			ID: "no-object", Severity: Warning, Summary: "Every manifest file contains an object.",
			Why: "An empty file has often lost its content by mistake.", Remedy: "remove the file, or restore its content",
		},
		{
			ID: "list", Severity: Warning, Summary: "Every object is a separate document.",
			Why:    "OpenShift's operator does not support lists: it rejects the whole release.",
			Remedy: "write each item as a separate document, separated by lines of ---",
		},
		{
			ID: "duplicate-key", Severity: Warning, Summary: "No map has duplicate keys.",
			Why: "The last one counts, and the next edit may change the wrong one.", Remedy: "remove one of the two",
		},
	}
}

func inclusionRules() []Rule {
	return []Rule{
		{
			ID: "never-included", Severity: Warning, Summary: "Every object has a profile.",
			Why:    "An object without an include annotation is never installed.",
			Remedy: "annotate it " + api.IncludePrefix + api.DefaultProfile + `: "true", or remove it`,
		},
		{
			ID: "include-value", Severity: Warning, Summary: `Include annotations are "true".`,
			Why: "Any other value excludes the object.", Remedy: `write "true", or remove the annotation`,
		},
		{
			ID: "unknown-profile", Severity: Warning, Summary: "Include annotations refer to profiles of OpenShift.",
			Why:    "A misspelled profile has no effect. Disable this rule for a platform with its own profiles.",
			Remedy: "correct the name, or disable this rule if the platform has a profile with this name",
		},
		{
			ID: "unknown-capability", Severity: Error, Summary: "Capabilities are valid in a ClusterVersion.",
			Why:    "The list of capabilities is fixed. Others cannot be enabled or reported in the status.",
			Remedy: "remove the annotation, or use one of the known capabilities: " + inclusion.CapabilityNames(inclusion.KnownCapabilities()),
		},
		{
			ID: "unknown-feature-set", Severity: Error, Summary: "Feature sets are known.",
			Why: "No cluster gets an object with an unknown feature set, even if it also lists known ones.", Remedy: "use Default, CustomNoUpgrade, DevPreviewNoUpgrade, OKD or TechPreviewNoUpgrade, separated by commas without spaces",
		},
		{
			ID: "unknown-feature-gate", Severity: Warning, Summary: "Feature gates are in the release's FeatureGates.",
			Why: "An unknown gate is never on. It always excludes the object; if negated, it always includes the object.", Remedy: "correct the name, or add the gate to the FeatureGates",
		},
		{
			ID: "feature-annotations", Severity: Error, Summary: "Feature annotations do not contradict each other.",
			Why: "No cluster gets an object with contradictory annotations.", Remedy: "keep only one of " + api.FeatureSetAnnotation + " and " + api.FeatureGateAnnotation + ", and remove contradictory names",
		},
		{
			ID: "major-version", Severity: Error, Summary: "Lists of major versions are valid, and only on FeatureGates and CRDs.",
			Why: "No cluster gets an object with an invalid list, or an object of another kind with a list.", Remedy: "remove the annotation " + api.MajorVersionAnnotation + ", or write it as a list such as -5",
		},
		{
			ID: "major-version-list", Severity: Warning, Summary: "Lists exclude major versions instead of including them.",
			Why: "A release with a major version after the included ones silently loses the object.", Remedy: "list only excluded major versions, such as -5, or remove the annotation",
		},
		{
			ID: "empty-entry", Severity: Warning, Summary: "Lists of feature gates and major versions have no empty entries.",
			Why: "An empty entry has no effect. Usually a name is missing.", Remedy: "write the missing name, or remove the comma or the annotation",
		},
		{
			ID: "unknown-annotation", Severity: Warning, Summary: "Annotations in the release's own domains are known.",
			Why: "An unknown annotation, such as a plural, does not have the effect that its author expects.", Remedy: "correct the annotation's name, or remove it",
		},
		{
			ID: "delete-value", Severity: Error, Summary: `The delete annotation is "true".`,
			Why: "With any other value, OpenShift's operator fails and this operator applies the object.", Remedy: `write "true", or remove ` + api.DeleteAnnotation,
		},
		{
			ID: "create-only-value", Severity: Warning, Summary: `The create-only annotation is "true".`,
			Why: "Other values do not always have an effect: only some of OpenShift's code ignores the case.", Remedy: `write "true", or remove ` + api.CreateOnlyAnnotation,
		},
		{
			ID: "on-immutable-value", Severity: Error, Summary: `The on-immutable annotation is "recreate".`,
			Why: "Any other value has no effect, so the first change to an immutable field blocks the rollout.", Remedy: `write "recreate", or remove ` + api.OnImmutableAnnotation,
		},
		{
			ID: "wait-value", Severity: Error, Summary: `The wait annotation is "false" and on a workload.`,
			Why: "Otherwise it has no effect, so rollouts wait for the pods.", Remedy: `write "false", or remove ` + api.WaitAnnotation,
		},
		{
			ID: "tombstone-annotation", Severity: Warning, Summary: "Deleted objects have no annotations about applying them.",
			Why: "The object is deleted, so the other annotation has no effect.", Remedy: "remove the other annotation",
		},
		{
			ID: "tombstone-contradiction", Severity: Error, Summary: "A release does not delete objects that it needs.",
			Why: "The object would be deleted and recreated forever, or its deletion would delete other objects.", Remedy: "remove the annotation " + api.DeleteAnnotation + " or the contradicting manifest",
		},
	}
}

func kindRules() []Rule {
	return []Rule{
		{
			ID: "tombstone-kind", Severity: Info, Summary: "Deleted kinds have a CRD in the previous release.",
			Why:    "A release that retires a kind deletes its objects and has no CRD for the kind. A misspelled kind looks the same.",
			Remedy: "specify the previous release with --from to distinguish the two cases",
		},
		{
			ID: "kind-dropped", Severity: Warning, Summary: "Kinds of the previous release are kept or deleted. Needs --from.",
			Why:    "A dropped CRD stays in clusters with its objects, although no operator manages them anymore.",
			Remedy: "keep the CRD, or delete the CRD and its objects with tombstones",
		},
		{
			ID: "storage-version-change", Severity: Warning, Summary: "CRDs store the same version as in the previous release. Needs --from.",
			Why: "Existing objects stay in etcd in their old version, which status.storedVersions lists. The API server rejects a CRD that lacks a listed version. " +
				"So an update cannot drop the old version, and clusters cannot go back to a release that lacks the new one.",
			Remedy: "keep the version in spec.versions, let a component rewrite all objects and remove the version from status.storedVersions, and drop it in a later release; " +
				"add a version one release before it is stored",
		},
		{
			ID: "version-dropped", Severity: Warning, Summary: "CRDs keep the versions of the previous release. Needs --from.",
			Why: "A cluster that came through an earlier release may still list the version in status.storedVersions. Then the API server rejects the CRD, and the update fails.",
			Remedy: "keep the version in spec.versions with served: false, until a component has rewritten all objects of the kind and removed the version from status.storedVersions in all clusters; " +
				"skip this rule if no cluster has stored it",
		},
		{
			ID: "unknown-kind", Severity: Error, Summary: "Every kind is served.",
			Why: "The rollout waits until the kind is served.", Remedy: "correct apiVersion and kind, or add the CRD to the release",
		},
		{
			ID: "unserved-version", Severity: Error, Summary: "Every API version is served.",
			Why: "The rollout waits until the version is served. It counts a deletion in an unserved version as done.", Remedy: "use a served version, or serve this version in the CRD",
		},
		{
			ID: "removed-api", Severity: Error, Summary: "All APIs exist in the release's Kubernetes version.",
			Why: "The API server does not serve the removed version.", Remedy: "move the object to the version that replaces it",
		},
		{
			ID: "deprecated-api", Severity: Warning, Summary: "APIs are not deprecated.",
			Why: "A release for a later Kubernetes version cannot apply the object.", Remedy: "move the object to the version that replaces it",
		},
		{
			ID: "api-off-by-default", Severity: Warning, Summary: "APIs are served by default.",
			Why: "API servers serve alpha versions, and beta versions that are new since Kubernetes 1.24, only with --runtime-config.", Remedy: "use a stable version, or make sure that the platform's API servers enable this one",
		},
		{
			ID: "missing-namespace", Severity: Error, Summary: "Namespaced objects have a namespace.",
			Why: "There is no default namespace, so the API server rejects the object.", Remedy: "set metadata.namespace",
		},
		{
			ID: "stray-namespace", Severity: Warning, Summary: "Cluster-scoped objects have no namespace.",
			Why: "The API server drops the namespace, and tools that compare namespaces see a different object.", Remedy: "remove metadata.namespace",
		},
		{
			ID: "unknown-namespace", Severity: Warning, Summary: "Namespaces are part of the release.",
			Why: "The rollout waits until the namespace exists.", Remedy: "add the Namespace to the release, or correct metadata.namespace",
		},
		{
			ID: "invalid-custom-resource", Severity: Error, Summary: "Custom resources match the schema of their CRD in the release.",
			Why: "The API server rejects the object.", Remedy: "correct the field, or the schema in the CRD",
		},
		{
			ID: "incomplete-custom-resource", Severity: Warning, Summary: "Custom resources have the required fields of their CRD in the release.",
			Why:    "The API server rejects the object, unless another client has created it with this field.",
			Remedy: "add the field, or make sure that another client creates the object first",
		},
		{
			ID: "pruning-version", Severity: Warning, Summary: "Custom resources are in the storage version, or a version with all of its fields.",
			Why: "Without a conversion webhook, each apply removes the other fields, even if another client has set them.", Remedy: "move the manifest to the storage version",
		},
		{
			ID: "unknown-field", Severity: Warning, Summary: "Fields of built-in kinds are known.",
			Why: "The API server drops an unknown field, so it has no effect.", Remedy: "correct the field's name or its indentation, or remove it",
		},
		{
			ID: "wrong-type", Severity: Error, Summary: "Fields of built-in kinds have the right type.",
			Why: "The API server rejects the object.", Remedy: "correct the value; quote text that looks like a number or a boolean",
		},
	}
}

func objectRules() []Rule {
	return []Rule{
		{
			ID: "invalid-object", Severity: Error, Summary: "Every document is an object with apiVersion, kind and metadata.name.",
			Why: "A cluster rejects the whole release.", Remedy: "correct the field; annotations and labels are strings, so quote them",
		},
		{
			ID: "generate-name", Severity: Error, Summary: "Objects have a fixed name.",
			Why: "A release is applied repeatedly, and metadata.generateName would create another object each time. A cluster rejects the release.", Remedy: "set metadata.name; a Job that must run in each release can include the release's version in its name",
		},
		{
			ID: "duplicate-object", Severity: Error, Summary: "No cluster gets an object from more than one document.",
			Why: "A cluster rejects the whole release. OpenShift's operator applies both alternately, forever.", Remedy: "remove one of the two, or give each its own profile, feature set or feature gate",
		},
		{
			ID: "object-size", Severity: Warning, Summary: "Objects fit into etcd with their managedFields.",
			Why: "The API server rejects objects that are too large for etcd (1.5 MiB by default) after it has added managedFields.", Remedy: "split the object, or remove descriptions from its schema",
		},
		{
			ID: "data-size", Severity: Error, Summary: "ConfigMaps and Secrets have at most 1 MiB of data.",
			Why: "The API server rejects the object.", Remedy: "split the object",
		},
		{
			ID: "data-key", Severity: Error, Summary: "Keys of ConfigMaps and Secrets are valid and unique.",
			Why: "The API server rejects the object.", Remedy: "use letters, digits, '-', '_' and '.' only, and a different key for each value",
		},
		{
			ID: "object-too-large", Severity: Error, Summary: "Objects fit into etcd.",
			Why: "A cluster rejects the whole release.", Remedy: "split the object, or remove descriptions from its schema",
		},
		{
			ID: "invalid-metadata", Severity: Error, Summary: "Names, labels, annotations, finalizers and owners are valid.",
			Why: "The API server rejects the object.", Remedy: "correct the field",
		},
		{
			ID: "selector", Severity: Error, Summary: "Workload selectors match the pods.",
			Why: "The API server rejects the object.", Remedy: "give the pods the labels that the selector requires",
		},
		{
			ID: "job-order", Severity: Info, Summary: "Jobs delay later manifests.",
			Why:    "During an update, all later manifests of all components wait until the Job completes. During an installation, only later files of the same component wait.",
			Remedy: "give the Job a higher runlevel or a later file name if nothing depends on it",
		},
		{
			ID: "job-ttl", Severity: Warning, Summary: "Jobs are kept after they finish.",
			Why: "The operator recreates a deleted Job, so the Job runs every few minutes.", Remedy: "remove spec.ttlSecondsAfterFinished",
		},
		{
			ID: "operator-versions", Severity: Error, Summary: "ClusterOperators list the versions that they report after an update.",
			Why: "The rollout fails at a ClusterOperator without status.versions, and does not wait for unlisted versions.", Remedy: "add status.versions with name operator and version " + manifest.VersionPlaceholder + ", which becomes the release's",
		},
		{
			ID: "operator-version", Severity: Warning, Summary: "ClusterOperators expect the release's version.",
			Why: "Operators report the release's version. If another version is expected, the rollout waits forever.", Remedy: "write " + manifest.VersionPlaceholder + " in the component's manifest, which becomes the release's version",
		},
		{
			ID: "operator-alone", Severity: Warning, Summary: "ClusterOperators have a workload in the same component.",
			Why: "If no operator reports the ClusterOperator's status, the rollout waits forever.", Remedy: "add the operator's Deployment to the same component, or make sure that another component reports the status",
		},
		{
			ID: "autoscaled-replicas", Severity: Warning, Summary: "Workloads with a HorizontalPodAutoscaler do not set spec.replicas.",
			Why:    "The operator and the autoscaler change the number in turn.",
			Remedy: "omit replicas, so that the autoscaler decides",
		},
		{
			ID: "machine-config-runlevel", Severity: Warning, Summary: "MachineConfigs are at runlevel 80 or later.",
			Why:    "An update may drain and reboot each node twice: once for the MachineConfig, and once for the changes that the new node stage brings.",
			Remedy: "rename the file to 0000_80_<component>_<rest>, or use a later runlevel",
		},
		{
			ID: "verification", Severity: Error, Summary: "The ConfigMap with keys and stores is valid.",
			Why: "A cluster with this release would reject all signatures on the next release.", Remedy: "add OpenPGP keys as verifier-public-key-<name> and store addresses as store-<name>",
		},
		{
			ID: "trust-shared-signer", Severity: Warning, Summary: "Members of a threshold have different signers.",
			Why: "A key or identity counts for only one member, so the threshold may be unreachable.", Remedy: "give each member of the threshold a different key or identity",
		},
		{
			ID: "verification-missing", Severity: Warning, Summary: "The release contains keys for the next release.",
			Why: "Without these keys, a cluster needs a trust file to update.", Remedy: "add a ConfigMap with the annotation " + api.VerificationAnnotation + ", or start the operator with --trust",
		},
	}
}

func imageRules() []Rule {
	return []Rule{
		{
			ID: "version-placeholder", Severity: Error, Summary: "Version placeholders are replaced.",
			Why: "Operators would report a version that does not exist.", Remedy: "assemble the release with cvo release new, which replaces " + manifest.VersionPlaceholder,
		},
		{
			ID: "operator-placeholder", Severity: Warning, Summary: "The version operator's own manifests have no version placeholders.",
			Why: "The folder manifests/ is copied unchanged from the version operator's image, so its placeholders are not replaced.", Remedy: "remove " + manifest.VersionPlaceholder + " from the version operator's manifests, or pass the folder to cvo release new as a component",
		},
		{
			ID: "image-placeholder", Severity: Error, Summary: "Image placeholders are replaced.",
			Why: "The placeholder is not an existing image.", Remedy: "list the placeholder in the component's image-references, so that assembling the release replaces it",
		},
		{
			ID: "image-not-in-release", Severity: Warning, Summary: "All images are in the release.",
			Why: "An image that the release does not list is not mirrored or updated with the release.", Remedy: "add the image to image-references",
		},
		{
			ID: "image-by-tag", Severity: Warning, Summary: "Image references have a digest.",
			Why: "A tag can be moved after the release was signed.", Remedy: "write a digest, or list the reference as the from.name of a tag in the component's image-references and add the argument TAG=PULLSPEC to cvo release new",
		},
		{
			ID: "image-unused", Severity: Info, Summary: "Every image is used by a manifest.",
			Why: "An unused image makes mirrors larger. Some images are used in other ways: by name, by tools, or by other images.", Remedy: "remove the image from the release if nothing needs it",
		},
	}
}

func releaseRules() []Rule {
	return []Rule{
		{
			ID: "folder", Severity: Error, Summary: "A release has manifests/ and release-manifests/.",
			Why: "A cluster rejects an image without these folders.", Remedy: "assemble the release with cvo release new on top of the version operator's image",
		},
		{
			ID: "metadata", Severity: Error, Summary: "release-metadata can be read.",
			Why: "A cluster rejects the whole release.", Remedy: "write kind cincinnati-metadata-v0 and a semantic version",
		},
		{
			ID: "metadata-versions", Severity: Warning, Summary: "previous lists earlier versions, and next lists later versions.",
			Why: "Update graphs are generated from these lists.", Remedy: "correct the list",
		},
		{
			ID: "metadata-values", Severity: Warning, Summary: "The metadata's values are valid.",
			Why: "The ClusterVersion omits invalid values.", Remedy: "correct the value",
		},
		{
			ID: "kubernetes-versions", Severity: Error, Summary: "The range of Kubernetes versions is valid.",
			Why: "A cluster rejects updates to the release.", Remedy: `write a range such as ">=1.30.0 <1.38.0", as text`,
		},
		{
			ID: "image-references", Severity: Error, Summary: "image-references is valid and belongs to this version.",
			Why: "A cluster rejects a release if the name in image-references differs from its version, and ignores images that are not of kind DockerImage.", Remedy: "assemble the release again",
		},
		{
			ID: "crd-after-use", Severity: Warning, Summary: "A CRD comes before the first object of its kind.",
			Why: "This operator applies the CRD before its first user; OpenShift's operator waits forever during an update.", Remedy: "give the CRD a lower runlevel than its first user, or the user a higher one",
		},
		{
			ID: "namespace-after-use", Severity: Warning, Summary: "A Namespace comes before the first object in it.",
			Why: "This operator applies the Namespace before its first user; OpenShift's operator waits forever during an update.", Remedy: "give the Namespace a lower runlevel than its first user, or the user a higher one",
		},
	}
}
