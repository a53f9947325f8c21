package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/operator"
)

// pullspec turns what a command line says into a pullspec, folder or layout: nothing is the release that the cluster is
// on or moving to, a version is one that the cluster knows of, everything else stands for itself.
func (f *versionFlags) pullspec(ctx context.Context, arg string) (string, error) {
	if !askCluster(arg) {
		return arg, nil
	}
	_, cv, err := f.connect(ctx)
	switch {
	case err != nil && arg == "":
		return "", fmt.Errorf("no release is named, and of the cluster's own this is known: %w", err)
	case err != nil:
		return "", fmt.Errorf("the semantic version %q cannot be resolved without a cluster that knows it: %w (or name the image)", arg, err)
	}
	if arg != "" {
		return findVersion(cv, arg)
	}
	if cv.Status.Desired.Image == "" {
		return "", fmt.Errorf("no release is named, and ClusterVersion %s has no status.desired.image yet: name an image", cv.Name)
	}
	return cv.Status.Desired.Image, nil
}

// askCluster tells whether only a cluster knows what is meant. Folders of such a name come first: they are here.
func askCluster(arg string) bool {
	if arg == "" {
		return true
	}
	_, err := semver.Parse(arg)
	return err == nil && !isFolder(arg)
}

// connect reads the ClusterVersion.
func (f *versionFlags) connect(ctx context.Context) (client.Reader, *configv1.ClusterVersion, error) {
	c, err := f.open("cvo-release")
	if err != nil {
		return nil, nil, err
	}
	cv, err := f.readClusterVersion(ctx, c)
	return c, cv, err
}

// knownRelease is a release that a ClusterVersion knows of.
type knownRelease struct{ version, image string }

// knownReleases lists those with an image, each version once: what the cluster is on or moving to, what it may update to,
// conditionally or not, and what it was on.
func knownReleases(cv *configv1.ClusterVersion) []knownRelease {
	all := []knownRelease{{cv.Status.Desired.Version, cv.Status.Desired.Image}}
	for _, update := range cv.Status.AvailableUpdates {
		all = append(all, knownRelease{update.Version, update.Image})
	}
	for _, update := range cv.Status.ConditionalUpdates {
		all = append(all, knownRelease{update.Release.Version, update.Release.Image})
	}
	for _, entry := range cv.Status.History {
		all = append(all, knownRelease{entry.Version, entry.Image})
	}
	var known []knownRelease
	for _, r := range all {
		if r.version != "" && r.image != "" && !slices.ContainsFunc(known, func(k knownRelease) bool { return k.version == r.version }) {
			known = append(known, r)
		}
	}
	return known
}

// findVersion is the image of a version.
func findVersion(cv *configv1.ClusterVersion, version string) (string, error) {
	known := knownReleases(cv)
	var versions []string
	for _, r := range known {
		if r.version == version {
			return r.image, nil
		}
		versions = append(versions, fmt.Sprintf("%q", r.version))
	}
	hint := "it knows no release"
	if len(versions) > 0 {
		hint = "it knows " + strings.Join(versions, ", ")
	}
	return "", fmt.Errorf("the semantic version %q is not present in the cluster version status, cannot be resolved: %s; name the image instead", version, hint)
}

// completeReleases offers folders and the versions that the cluster knows, if it answers at once.
func (f *versionFlags) completeReleases(cmd *cobra.Command) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	_, cv, err := f.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	var versions []string
	for _, r := range knownReleases(cv) {
		versions = append(versions, cobra.CompletionWithDesc(r.version, r.image))
	}
	return versions, cobra.ShellCompDirectiveDefault
}

// clusterSelection is what the cluster takes of a release: by its own settings and those its operator was started with.
func (f *versionFlags) clusterSelection(ctx context.Context) (manifest.Filter, string, error) {
	reader, cv, err := f.connect(ctx)
	if err != nil {
		return manifest.Filter{}, "", err
	}
	options, err := operatorSettings(ctx, reader)
	if err != nil {
		return manifest.Filter{}, "", err
	}
	filter, err := operator.ClusterFilter(ctx, reader, cv, options)
	if err != nil {
		return filter, "", err
	}
	infrastructure := &configv1.Infrastructure{}
	err = reader.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return filter, "", fmt.Errorf("reading Infrastructure cluster: %w", err)
	}
	if infrastructure.Status.PlatformStatus == nil {
		return filter, "", nil
	}
	return filter, strings.ToLower(string(infrastructure.Status.PlatformStatus.Type)), nil
}

// operatorSettings are those of the operator's Deployment. An operator that runs elsewhere has told nobody; then the
// environment of this command counts, which is how an operator reads them too.
func operatorSettings(ctx context.Context, reader client.Reader) (operator.Options, error) {
	options := operator.Options{Profile: envOr("CLUSTER_PROFILE", api.DefaultProfile), ExcludeID: envOr("EXCLUDE_MANIFESTS", "")}
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: envOr("CVO_NAMESPACE", api.OperatorNamespace), Name: operatorDeployment}
	switch err := reader.Get(ctx, key, deployment); {
	case apierrors.IsNotFound(err):
		return options, nil
	case err != nil:
		return options, fmt.Errorf("reading Deployment %s, which says how the operator was started: %w", key, err)
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			switch {
			case variable.ValueFrom != nil:
			case variable.Name == "CLUSTER_PROFILE" && variable.Value != "":
				options.Profile = variable.Value
			case variable.Name == "EXCLUDE_MANIFESTS":
				options.ExcludeID = variable.Value
			}
		}
		words := slices.Concat(container.Command, container.Args)
		for n, arg := range words {
			value, ok := strings.CutPrefix(arg, "--always-enable-capabilities")
			switch {
			case ok && strings.HasPrefix(value, "="):
				options.AlwaysEnable = capabilityList(value[1:])
			case ok && value == "" && n+1 < len(words):
				options.AlwaysEnable = capabilityList(words[n+1])
			}
		}
	}
	return options, nil
}

// operatorDeployment is the name of the operator's Deployment, ours and OpenShift's.
const operatorDeployment = "cluster-version-operator"
