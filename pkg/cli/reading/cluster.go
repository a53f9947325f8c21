package reading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/operator/sources"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// pullspec resolves an argument to a pullspec, folder or layout. An empty argument means the release that the cluster runs or is updating
// to. A version means a release in the ClusterVersion. Other arguments are returned unchanged.
func pullspec(ctx context.Context, f *cluster.VersionFlags, arg string) (string, error) {
	if !needsCluster(arg) {
		return arg, nil
	}
	_, cv, err := connect(ctx, f)
	switch {
	case err != nil && arg == "":
		return "", fmt.Errorf("name a release, or connect to a cluster to use its current release: %w", err)
	case err != nil:
		return "", fmt.Errorf("the semantic version %q cannot be resolved without a cluster that lists it: %w (or name the image)", arg, err)
	}
	if arg != "" {
		return findVersion(cv, arg)
	}
	if cv.Status.Desired.Image == "" {
		return "", fmt.Errorf("name a release: ClusterVersion %s has no status.desired.image yet", cv.Name)
	}
	return cv.Status.Desired.Image, nil
}

// needsCluster reports whether only a cluster can resolve the argument. A local folder takes precedence over a version.
func needsCluster(arg string) bool {
	if arg == "" {
		return true
	}
	_, err := semver.Parse(arg)
	return err == nil && !isFolder(arg)
}

// NameImage returns the image of a version that the ClusterVersion lists. Any other name of a release, and a folder, it returns unchanged.
func NameImage(cv *configv1.ClusterVersion, name string) (string, error) {
	if !needsCluster(name) {
		return name, nil
	}
	return findVersion(cv, name)
}

// connect reads the ClusterVersion.
func connect(ctx context.Context, f *cluster.VersionFlags) (client.Reader, *configv1.ClusterVersion, error) {
	c, err := f.Open("cvo-release")
	if err != nil {
		return nil, nil, err
	}
	cv, err := f.ReadClusterVersion(ctx, c)
	return c, cv, err
}

// knownRelease is a release that a ClusterVersion lists.
type knownRelease struct{ version, image string }

// knownReleases lists the desired release, the available and conditional updates, and the history. It lists each version once, and only
// releases with an image.
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

// findVersion returns the image of a version.
func findVersion(cv *configv1.ClusterVersion, version string) (string, error) {
	known := knownReleases(cv)
	var versions []string
	for _, r := range known {
		if r.version == version {
			return r.image, nil
		}
		versions = append(versions, fmt.Sprintf("%q", r.version))
	}
	hint := "the cluster lists no release"
	if len(versions) > 0 {
		hint = "the cluster lists " + strings.Join(versions, ", ")
	}
	return "", fmt.Errorf("the semantic version %q is not present in the cluster version status, cannot be resolved: %s; name the image instead", version, hint)
}

// CompleteReleases offers folders and the versions in the ClusterVersion, if the cluster answers within a second.
func CompleteReleases(cmd *cobra.Command, f *cluster.VersionFlags) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	_, cv, err := connect(ctx, f)
	if err != nil {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	var versions []string
	for _, r := range knownReleases(cv) {
		versions = append(versions, cobra.CompletionWithDesc(r.version, r.image))
	}
	return versions, cobra.ShellCompDirectiveDefault
}

// Selection describes which manifests of a release a cluster gets.
type Selection struct {
	// Platform is the name of the cluster's platform; empty if unknown.
	Platform string
	// filter returns the filter for a release of a version. It comes from the settings of the cluster and its operator.
	filter func(version string) inclusion.Filter
	// running is the release that the cluster runs or is updating to.
	running configv1.Release
}

// ClusterSelection returns the selection of the cluster.
func ClusterSelection(ctx context.Context, f *cluster.VersionFlags) (Selection, error) {
	reader, cv, err := connect(ctx, f)
	if err != nil {
		return Selection{}, err
	}
	deployment, err := cluster.ReadOperatorDeployment(ctx, reader, cluster.OperatorDeployment())
	if err != nil {
		return Selection{}, err
	}
	s := Selection{running: cv.Status.Desired}
	if s.filter, err = sources.ClusterFilter(ctx, reader, cv, OperatorSettings(deployment)); err != nil {
		return s, err
	}
	infrastructure := &configv1.Infrastructure{}
	err = reader.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return s, fmt.Errorf("reading Infrastructure cluster: %w", err)
	}
	if platform := infrastructure.Status.PlatformStatus; platform != nil {
		s.Platform = strings.ToLower(string(platform.Type))
	}
	return s, nil
}

// ForUpdate returns the filter for an update of the cluster to a release, and a text about the capabilities that the update enables. The
// text is empty if there are none.
func (s Selection) ForUpdate(ctx context.Context, r *inspect.Release, images *image.Reader) (filter inclusion.Filter, enables string, err error) {
	files, err := r.Files(ctx)
	if err != nil {
		return filter, "", err
	}
	update, enables, err := LoadUpdate(ctx, files, r.Image.Pullspec, payload.Options{}, s.filter, func() (*payload.Payload, error) {
		if r.Image.Digest != "" && r.Image.Digest == release.Pullspec(s.running.Image).Digest() {
			return &payload.Payload{}, nil // an update to the running release enables nothing
		}
		return LoadRunning(ctx, images, s.running.Image, payload.Options{Filter: s.filter(s.running.Version)})
	})
	return update.Filter, enables, err
}

// LoadUpdate loads a release as the cluster gets it in an update from the running release. enables is a text about the capabilities that the
// update enables; empty if there are none. filter is described at payload.LoadUpdate.
func LoadUpdate(
	ctx context.Context, files fs.FS, image string, load payload.Options, filter func(version string) inclusion.Filter,
	running func() (*payload.Payload, error),
) (update payload.Update, enables string, err error) {
	unknown := ""
	update, err = payload.LoadUpdate(files, image, load, filter, func() ([]*manifest.Manifest, error) {
		before, err := running()
		if err != nil {
			unknown = "It is unknown whether the update enables capabilities, because the running release cannot be read: " + err.Error()
			return nil, ctx.Err()
		}
		return before.Manifests, nil
	})
	if err != nil {
		return update, "", err
	}
	return update, cmp.Or(update.EnablesText(), unknown), nil
}

// LoadRunning loads the release that a cluster runs. The cluster verified its digest when it accepted the release.
func LoadRunning(ctx context.Context, images *image.Reader, pullspec string, load payload.Options) (*payload.Payload, error) {
	if !release.Pullspec(pullspec).HasDigest() {
		return nil, errors.New("status.desired of the ClusterVersion names no image by digest")
	}
	img, err := images.Resolve(ctx, pullspec)
	if err != nil {
		return nil, err
	}
	files, err := images.Manifests(ctx, img)
	if err != nil {
		return nil, err
	}
	load.Filter.MajorVersion = nil // that of the running release
	load.Filter.Overrides = nil    // an unmanaged object also decides which capabilities an update enables
	return payload.Load(files, img.ByDigest(), load)
}

// OperatorSettings returns the settings in the operator's Deployment. deployment is nil for an operator outside the cluster. Then the
// environment of this command counts, because such an operator reads the same variables.
func OperatorSettings(deployment *appsv1.Deployment) accept.Settings {
	own := accept.Settings{Profile: api.DefaultProfile}
	if deployment == nil {
		return accept.Settings{Profile: command.EnvOr("CLUSTER_PROFILE", own.Profile), ExcludeID: command.EnvOr("EXCLUDE_MANIFESTS", "")}
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			switch {
			case variable.ValueFrom != nil:
			case variable.Name == "CLUSTER_PROFILE" && variable.Value != "":
				own.Profile = variable.Value
			case variable.Name == "EXCLUDE_MANIFESTS":
				own.ExcludeID = variable.Value
			}
		}
	}
	if value, set := cluster.OperatorFlag(deployment, "--always-enable-capabilities"); set {
		own.AlwaysEnable = cluster.CapabilityList(value)
	}
	return own
}
