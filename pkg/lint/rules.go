package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Rule is one thing that Check looks for. IDs do not change, so that a list of disabled rules keeps its meaning.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Summary is what a release should be like.
	Summary string `json:"summary"`
	// Why says what happens to a release that is not.
	Why string `json:"why"`
	// Remedy is what the author can do.
	Remedy string `json:"remedy"`
}

// Rules lists all rules by ID.
func Rules() []Rule {
	all := slices.Concat(fileRules(), inclusionRules(), kindRules(), objectRules(), imageRules(), releaseRules())
	slices.SortFunc(all, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func rulesByID() map[string]Rule {
	byID := map[string]Rule{}
	for _, r := range Rules() {
		byID[r.ID] = r
	}
	return byID
}

// RuleByID finds a rule.
func RuleByID(id string) (Rule, bool) {
	rule, ok := rulesByID()[id]
	return rule, ok
}

// RuleIDs lists the IDs of all rules, sorted.
func RuleIDs() []string { return slices.Sorted(maps.Keys(rulesByID())) }

func fileRules() []Rule {
	return []Rule{
		{
			ID: "syntax", Severity: Error, Summary: "Every document parses.",
			Why: "One file that does not parse makes a cluster refuse the whole release.", Remedy: "correct the YAML or JSON at this line",
		},
		{
			ID: "not-text", Severity: Error, Summary: "Files are UTF-8 text without NUL bytes.",
			Why: "A cluster refuses the whole release.", Remedy: "save the file as UTF-8",
		},
		{
			ID: "byte-order-mark", Severity: Warning, Summary: "Files begin with their content.",
			Why:    "Applying a release reads over a byte order mark, but tools that look at the first byte take JSON for YAML and miss the first key.",
			Remedy: "save the file as UTF-8 without a byte order mark",
		},
		{
			ID: "template", Severity: Error, Summary: "Files of " + "manifests/" + " can be rendered.",
			Why:    "A file that cannot be rendered is left out by a running operator, with a warning that few read.",
			Remedy: "use text, conditions and the values .ReleaseImage, .ClusterProfile and index .Images \"name\" only",
		},
		{
			ID: "file-name", Severity: Warning, Summary: "Files are named 0000_NN_<component>_<rest>.",
			Why:    "The name decides when a file is applied and what waits for it.",
			Remedy: "rename it to 0000_NN_<component>_<rest>, NN being the runlevel",
		},
		{
			ID: "file-ignored", Severity: Warning, Summary: "Every file is applied.",
			Why:    "Files of another extension and sub-folders are carried along and read by nobody.",
			Remedy: "give it the extension .yaml and put it into the folder itself, or leave it out of the component's image",
		},
		{
			ID: "no-object", Severity: Warning, Summary: "Every manifest file holds an object.",
			Why: "An empty file is often one whose content was lost.", Remedy: "remove the file, or put back what belongs into it",
		},
		{
			ID: "list", Severity: Warning, Summary: "Every object is a document of its own.",
			Why:    "OpenShift's operator does not take lists apart: it refuses the whole release.",
			Remedy: "write the items as documents of their own, separated by lines of ---",
		},
		{
			ID: "duplicate-key", Severity: Warning, Summary: "No map has a key twice.",
			Why: "The last one counts, which may not be the one that somebody changes next.", Remedy: "remove one of the two",
		},
	}
}

func inclusionRules() []Rule {
	return []Rule{
		{
			ID: "never-included", Severity: Warning, Summary: "Every object is for some profile.",
			Why:    "Without an include annotation no cluster ever gets an object.",
			Remedy: "annotate it " + api.IncludePrefix + api.DefaultProfile + `: "true", or remove it`,
		},
		{
			ID: "include-value", Severity: Warning, Summary: `Include annotations are "true".`,
			Why: "Any other value leaves the object out.", Remedy: `write "true", or remove the annotation`,
		},
		{
			ID: "unknown-profile", Severity: Warning, Summary: "Include annotations name profiles of OpenShift.",
			Why:    "A profile with a typing mistake includes nothing. A platform with profiles of its own disables this rule.",
			Remedy: "correct the name, or disable this rule if the platform has a profile of that name",
		},
		{
			ID: "unknown-capability", Severity: Error, Summary: "Capabilities are those that ClusterVersion knows.",
			Why:    "The list of capabilities is closed: nobody can enable another one, and status cannot name it.",
			Remedy: "use one of the known capabilities, or leave the annotation out",
		},
		{
			ID: "unknown-feature-set", Severity: Error, Summary: "Feature sets are known.",
			Why: "An object that names one that is not known is left out everywhere, by the other sets that it names, too.", Remedy: "use Default, CustomNoUpgrade, DevPreviewNoUpgrade, OKD or TechPreviewNoUpgrade, separated by commas without spaces",
		},
		{
			ID: "unknown-feature-gate", Severity: Warning, Summary: "Feature gates are those that the release's FeatureGates name.",
			Why: "A gate that nobody turns on leaves the object out, one that nobody turns off lets it in.", Remedy: "correct the name, or add the gate to the FeatureGates",
		},
		{
			ID: "feature-annotations", Severity: Error, Summary: "Feature annotations can be met.",
			Why: "A contradiction leaves the object out of every cluster.", Remedy: "keep one of " + api.FeatureSetAnnotation + " and " + api.FeatureGateAnnotation + ", with names that do not contradict each other",
		},
		{
			ID: "major-version", Severity: Error, Summary: "Lists of major versions can be read, and stand on FeatureGates and CRDs only.",
			Why: "Elsewhere, or with a mistake in it, the annotation leaves the object out of every cluster.", Remedy: "remove the annotation " + api.MajorVersionAnnotation + ", or write it as a list such as -5",
		},
		{
			ID: "major-version-list", Severity: Warning, Summary: "Major versions are excluded, not listed.",
			Why: "A list of those that get the object ends somewhere, and the first release behind its end loses the object in silence.", Remedy: "name the major versions that must not get it, as in -5, or none",
		},
		{
			ID: "unknown-annotation", Severity: Warning, Summary: "Annotations of the release's own domains mean something.",
			Why: "An annotation that nobody reads, such as a plural, leaves its author in the belief that it works.", Remedy: "correct the annotation's name, or remove it",
		},
		{
			ID: "delete-value", Severity: Error, Summary: `The delete annotation is "true".`,
			Why: "OpenShift's operator fails at any other value, and here the object is applied.", Remedy: `write "true", or remove ` + api.DeleteAnnotation,
		},
		{
			ID: "create-only-value", Severity: Warning, Summary: `The create-only annotation is "true".`,
			Why: "Another value has no effect, or not everywhere: upstream reads it with and without case.", Remedy: `write "true", or remove ` + api.CreateOnlyAnnotation,
		},
		{
			ID: "on-immutable-value", Severity: Error, Summary: `The on-immutable annotation is "recreate".`,
			Why: "Any other value has no effect, and the first change of an immutable field stops the rollout.", Remedy: `write "recreate", or remove ` + api.OnImmutableAnnotation,
		},
		{
			ID: "tombstone-annotation", Severity: Warning, Summary: "Objects that are deleted say nothing of how they are applied.",
			Why: "The deletion wins, and the other annotation means nothing.", Remedy: "remove the other annotation",
		},
		{
			ID: "tombstone-contradiction", Severity: Error, Summary: "What a release deletes is nothing that it needs.",
			Why: "The object would be deleted and made again, for ever, or take others along.", Remedy: "remove the annotation " + api.DeleteAnnotation + " or what contradicts it",
		},
	}
}

func kindRules() []Rule {
	return []Rule{
		{
			ID: "unknown-kind", Severity: Error, Summary: "Every kind is served.",
			Why: "The rollout waits at this object until somebody serves its kind.", Remedy: "correct apiVersion and kind, or bring the CRD in the release",
		},
		{
			ID: "unserved-version", Severity: Error, Summary: "Every API version is served.",
			Why: "The rollout waits at this object until somebody serves this version.", Remedy: "use a version that is served, or have the CRD serve this one",
		},
		{
			ID: "removed-api", Severity: Error, Summary: "No API is used that the release's Kubernetes has dropped.",
			Why: "The API server answers that there is no such kind.", Remedy: "move the object to the version that replaces it",
		},
		{
			ID: "deprecated-api", Severity: Warning, Summary: "No API is used that will be dropped.",
			Why: "A later release cannot apply the object.", Remedy: "move the object to the version that replaces it",
		},
		{
			ID: "api-off-by-default", Severity: Warning, Summary: "APIs are served without being asked for.",
			Why: "API servers serve alpha versions, and beta versions that are new since Kubernetes 1.24, only with --runtime-config.", Remedy: "use a stable version, or make sure that the platform's API servers serve this one",
		},
		{
			ID: "missing-namespace", Severity: Error, Summary: "Namespaced objects name their namespace.",
			Why: "There is none by default: the API server refuses the object.", Remedy: "set metadata.namespace",
		},
		{
			ID: "stray-namespace", Severity: Warning, Summary: "Cluster-scoped objects name no namespace.",
			Why: "It is dropped, but whoever compares objects by namespace takes it for another one.", Remedy: "remove metadata.namespace",
		},
		{
			ID: "unknown-namespace", Severity: Warning, Summary: "Namespaces come with the release.",
			Why: "The rollout waits at this object until somebody makes the namespace.", Remedy: "bring the Namespace in the release, or correct metadata.namespace",
		},
		{
			ID: "unknown-field", Severity: Warning, Summary: "Fields of built-in kinds are known.",
			Why: "The API server drops a field that it does not know, and what it should do is not done.", Remedy: "correct the field's name or its indentation, or remove it",
		},
		{
			ID: "wrong-type", Severity: Error, Summary: "Fields of built-in kinds have the right type.",
			Why: "The API server refuses the object.", Remedy: "correct the value; text that looks like a number or yes and no needs quotes",
		},
	}
}

func objectRules() []Rule {
	return []Rule{
		{
			ID: "invalid-object", Severity: Error, Summary: "Every document is an object with apiVersion, kind and metadata.name.",
			Why: "A cluster refuses the whole release.", Remedy: "correct the field; annotations and labels are text, so quote them",
		},
		{
			ID: "generate-name", Severity: Error, Summary: "Objects have a name of their own.",
			Why: "A release is applied again and again, and metadata.generateName would make another object each time. A cluster refuses the release.", Remedy: "set metadata.name; a Job that has to run in each release can carry the release's version in its name",
		},
		{
			ID: "duplicate-object", Severity: Error, Summary: "No cluster gets one object from two documents.",
			Why: "A cluster refuses the whole release; OpenShift's operator applies one after the other, for ever.", Remedy: "remove one of the two, or give each its own profile, feature set or feature gate",
		},
		{
			ID: "object-size", Severity: Warning, Summary: "Objects fit into etcd.",
			Why: "The API server refuses what etcd does not take in one request, 1.5 MiB by default; a release with an object above that is refused.", Remedy: "split the object, or drop descriptions of its schema",
		},
		{
			ID: "invalid-metadata", Severity: Error, Summary: "Names, labels, annotations, finalizers and owners are valid.",
			Why: "The API server refuses the object.", Remedy: "correct the field",
		},
		{
			ID: "selector", Severity: Error, Summary: "Selectors of workloads match their pods.",
			Why: "The API server refuses the object.", Remedy: "give the pods the labels that the selector asks for",
		},
		{
			ID: "job-ttl", Severity: Warning, Summary: "Jobs stay once they are done.",
			Why: "A Job that deletes itself is missed and made again, so it runs every few minutes.", Remedy: "remove spec.ttlSecondsAfterFinished",
		},
		{
			ID: "operator-versions", Severity: Error, Summary: "ClusterOperators say which versions they will report.",
			Why: "The rollout fails at a ClusterOperator without status.versions, and does not wait for what is not listed.", Remedy: "add status.versions with name operator and version " + manifest.VersionPlaceholder + ", which becomes the release's",
		},
		{
			ID: "operator-version", Severity: Warning, Summary: "ClusterOperators expect the version of the release.",
			Why: "Operators report the release's version. One that expects another waits for ever.", Remedy: "write " + manifest.VersionPlaceholder + " in the component's manifest, which becomes the release's version",
		},
		{
			ID: "operator-alone", Severity: Warning, Summary: "ClusterOperators come with something that runs.",
			Why: "Nobody reports for a ClusterOperator that has no operator, and the rollout waits for ever.", Remedy: "bring the operator's Deployment in the same component, or make sure that another component reports",
		},
		{
			ID: "verification", Severity: Error, Summary: "The ConfigMap with keys and stores can be read.",
			Why: "A cluster that runs this release would not accept any signature on the next one.", Remedy: "give it keys verifier-public-key-<name> with OpenPGP keys and store-<name> with addresses",
		},
		{
			ID: "verification-missing", Severity: Warning, Summary: "The release brings keys for the next one.",
			Why: "Without them a cluster needs a trust file to update.", Remedy: "bring a ConfigMap with the annotation " + api.VerificationAnnotation + ", or start the operator with --trust",
		},
	}
}

func imageRules() []Rule {
	return []Rule{
		{
			ID: "version-placeholder", Severity: Error, Summary: "Versions are filled in.",
			Why: "Operators would report a version that no release has.", Remedy: "assemble the release with cvo release new, which replaces " + manifest.VersionPlaceholder,
		},
		{
			ID: "operator-placeholder", Severity: Warning, Summary: "The version operator's own manifests name no version.",
			Why: "The folder manifests/ comes as it is from the version operator's image: nothing is filled in there.", Remedy: "leave " + manifest.VersionPlaceholder + " out of the version operator's manifests, or give cvo release new the folder as a component",
		},
		{
			ID: "image-placeholder", Severity: Error, Summary: "Images are filled in.",
			Why: "There is no such image.", Remedy: "list the placeholder in the component's image-references, so that assembling the release replaces it",
		},
		{
			ID: "image-not-in-release", Severity: Warning, Summary: "All images are the release's own.",
			Why: "An image that the release does not list is neither mirrored nor replaced with it.", Remedy: "add the image to image-references",
		},
		{
			ID: "image-by-tag", Severity: Warning, Summary: "Images are named by digest.",
			Why: "What a tag leads to can change after the release was signed.", Remedy: "name the image by digest: list it in the component's image-references",
		},
		{
			ID: "image-unused", Severity: Info, Summary: "Every image is used by a manifest.",
			Why: "An image that nothing mentions makes mirrors larger. Some are used all the same: by name, by tools, by other images.", Remedy: "leave it out of the release if nothing needs it",
		},
	}
}

func releaseRules() []Rule {
	return []Rule{
		{
			ID: "folder", Severity: Error, Summary: "A release has manifests/ and release-manifests/.",
			Why: "A cluster takes an image without them for no release.", Remedy: "assemble the release with cvo release new, on the version operator's image",
		},
		{
			ID: "metadata", Severity: Error, Summary: "release-metadata can be read.",
			Why: "A cluster refuses the whole release.", Remedy: "write kind cincinnati-metadata-v0 and a semantic version",
		},
		{
			ID: "metadata-versions", Severity: Warning, Summary: "previous and next are versions before and after this one.",
			Why: "Update graphs are made of them.", Remedy: "correct the list",
		},
		{
			ID: "metadata-values", Severity: Warning, Summary: "The metadata's values can be read.",
			Why: "What cannot be read is left out of the ClusterVersion.", Remedy: "correct the value",
		},
		{
			ID: "kubernetes-versions", Severity: Error, Summary: "The range of Kubernetes versions can be read.",
			Why: "A cluster refuses to update to the release.", Remedy: `write a range such as ">=1.30.0 <1.38.0", as text`,
		},
		{
			ID: "image-references", Severity: Error, Summary: "image-references can be read and belongs to this version.",
			Why: "A cluster refuses a release whose image-references has another name than its version, and does not see images that are not of kind DockerImage.", Remedy: "assemble the release anew",
		},
		{
			ID: "crd-after-use", Severity: Warning, Summary: "A CRD comes before the first object of its kind.",
			Why: "It is drawn forward to its first user here; OpenShift's operator waits for ever when updating.", Remedy: "give the CRD a lower runlevel than its first user, or the user a higher one",
		},
		{
			ID: "namespace-after-use", Severity: Warning, Summary: "A Namespace comes before the first object in it.",
			Why: "It is drawn forward to its first user here; OpenShift's operator waits for ever when updating.", Remedy: "give the Namespace a lower runlevel than its first user, or the user a higher one",
		},
	}
}
