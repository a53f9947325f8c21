package lint

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// checkRelease looks at how the objects of a release fit together.
func (c *check) checkRelease() {
	c.checkFolders()
	c.checkDuplicates()
	c.checkTombstones()
	c.checkNamespaces()
	c.checkOperators()
	c.checkOrder()
	c.checkTrust()
	c.checkUnused()
}

// checkFolders misses the folders that every release has.
func (c *check) checkFolders() {
	for _, dir := range []string{payload.OperatorDir, payload.ReleaseDir} {
		if !slices.ContainsFunc(c.files, func(f *file) bool { return path.Dir(f.name) == dir }) {
			c.found.file("folder", dir, 0, "the folder is missing or empty")
		}
	}
}

// identity is what an object is the same by in a cluster: a namespace that its kind does not have is none.
func (c *check) identity(o *object) manifest.ID {
	id := o.ID()
	gk := o.GVK().GroupKind()
	for _, v := range c.served.versions[gk] {
		if c.served.byGVK[gk.WithVersion(v)].clusterScoped {
			id.Namespace = ""
		}
	}
	if all := c.crds[gk]; len(all) > 0 && all[0].clusterScoped {
		id.Namespace = ""
	}
	return id
}

// maxVariants bounds how many objects of one identity are compared with each other.
const maxVariants = 64

// checkDuplicates finds objects of one identity that one cluster would get together. Variants of an object for different
// profiles, feature sets or gates are what releases are full of.
func (c *check) checkDuplicates() {
	byID := map[manifest.ID][]*object{}
	for _, o := range c.objects {
		id := c.identity(o)
		for _, first := range byID[id] {
			if first.Is("image.openshift.io", "ImageStream") && first.Tombstone() == o.Tombstone() {
				continue // their tags are merged
			}
			if first.file == o.file && first.ID() == o.ID() {
				continue // parsing has said so
			}
			if !first.ForMajor(c.major()) || !o.ForMajor(c.major()) {
				continue
			}
			if where := c.gates.Clusters(first.reach, o.reach); len(where) > 0 {
				what := "also brought by"
				switch {
				case first.Tombstone() != o.Tombstone() && o.Tombstone():
					what = "deleted here and brought by"
				case first.Tombstone() != o.Tombstone():
					what = "brought here and deleted by"
				}
				c.found.object("duplicate-object", o, "%s is %s %s for profile %s with feature set %s", id, what, first.place(),
					where[0].Profile, where[0].FeatureSet)
				break
			}
		}
		if len(byID[id]) < maxVariants {
			byID[id] = append(byID[id], o)
		}
	}
}

// place reads like `release-manifests/x.yaml:12`.
func (o *object) place() string {
	if line := o.line(); line > 1 {
		return fmt.Sprintf("%s:%d", o.file.name, line)
	}
	return o.file.name
}

// checkTombstones finds deletions that take along what the release brings.
func (c *check) checkTombstones() {
	inside := map[string][]*object{} // by namespace
	ofKind := map[groupKind][]*object{}
	for _, o := range c.objects {
		if !o.Tombstone() {
			inside[o.Object.GetNamespace()] = append(inside[o.Object.GetNamespace()], o)
			ofKind[o.GVK().GroupKind()] = append(ofKind[o.GVK().GroupKind()], o)
		}
	}
	for _, o := range c.objects {
		var lost []*object
		switch {
		case !o.Tombstone():
		case o.Is("", "Namespace"):
			lost = inside[o.Object.GetName()]
		case o.Is("apiextensions.k8s.io", "CustomResourceDefinition"):
			plural, group, _ := strings.Cut(o.Object.GetName(), ".")
			for gk, objects := range ofKind {
				if gk.Group == group && strings.HasPrefix(plural, strings.ToLower(gk.Kind)) {
					lost = objects
				}
			}
		}
		for _, l := range lost {
			if c.meet(o, l) {
				c.found.object("tombstone-contradiction", o, "deleting it deletes %s too, which %s brings", l.ID(), l.place())
				break
			}
		}
	}
}

// checkNamespaces finds namespaces that objects are in and that no file brings, each once.
func (c *check) checkNamespaces() {
	users := map[string][]*object{}
	for _, o := range c.objects {
		namespace := c.identity(o).Namespace
		if namespace != "" && !o.Tombstone() && !o.reach.Never() && !c.namespaces.Has(namespace) &&
			!slices.Contains(givenNamespaces(), namespace) {
			users[namespace] = append(users[namespace], o)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(users)) {
		objects, more := users[namespace], ""
		if n := len(objects) - 1; n > 0 {
			more = fmt.Sprintf(", in which %d more objects are", n)
		}
		c.found.field("unknown-namespace", objects[0], fieldPath{"metadata", "namespace"},
			"no file of the release brings the namespace %q%s", namespace, more)
	}
}

// checkOperators finds ClusterOperators for which nothing of their component can speak.
func (c *check) checkOperators() {
	running := map[string]bool{}
	for _, o := range c.objects {
		if podTemplate(o) != nil && !o.Tombstone() {
			running[o.Component] = true
		}
	}
	for _, o := range c.objects {
		if o.Is("config.openshift.io", "ClusterOperator") && !o.Tombstone() && !running[o.Component] {
			c.found.object("operator-alone", o, "component %s brings this ClusterOperator and nothing that runs", o.Component)
		}
	}
}

// checkOrder asks the task graph what is drawn forward, in every kind of cluster.
func (c *check) checkOrder() {
	byManifest := make(map[*manifest.Manifest]*object, len(c.objects))
	profiles := sets.New[string]()
	for _, o := range c.objects {
		byManifest[o.Manifest] = o
		profiles.Insert(o.reach.Profiles...)
	}
	said := map[manifest.ID]bool{}
	for _, profile := range sets.List(profiles) {
		if profiles.Len() > 16 && !slices.Contains(manifest.KnownProfiles(), profile) {
			continue
		}
		for _, set := range manifest.KnownFeatureSets() {
			c.checkOrderIn(manifest.Cluster{Profile: profile, FeatureSet: set}, byManifest, said)
		}
	}
}

func (c *check) checkOrderIn(in manifest.Cluster, byManifest map[*manifest.Manifest]*object, said map[manifest.ID]bool) {
	var included []*manifest.Manifest
	for _, o := range c.objects {
		if c.gates.Includes(in, o.reach) {
			included = append(included, o.Manifest)
		}
	}
	graph, err := taskgraph.Build(included, release.Updating)
	if err != nil {
		return // no object is nil, and the mode is known
	}
	for _, n := range graph.Tasks() {
		o := byManifest[n.Manifest]
		if !n.Drawn || said[o.ID()] {
			continue
		}
		said[o.ID()] = true // its variants are drawn for the same reason
		user := firstUser(graph, n)
		rule, what := "crd-after-use", "the CRD"
		if o.Is("", "Namespace") {
			rule, what = "namespace-after-use", "the namespace"
		}
		if user == nil {
			c.found.object(rule, o, "%s is at runlevel %02d and needed at %02d", what, n.From.Runlevel, n.Runlevel)
			continue
		}
		c.found.object(rule, o, "%s is at runlevel %02d and needed at %02d by %s (%s)", what, n.From.Runlevel, n.Runlevel,
			user.ID(), byManifest[user].place())
	}
}

// firstUser is what a node was drawn forward for.
func firstUser(graph *taskgraph.Graph, n *taskgraph.Node) *manifest.Manifest {
	var users []*manifest.Manifest
	for _, s := range graph.Successors(n) {
		if m := s.Manifest; m != nil && (m.Object.GetNamespace() == n.Manifest.Object.GetName() || !n.Manifest.Is("", "Namespace")) {
			users = append(users, m)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return slices.MinFunc(users, func(a, b *manifest.Manifest) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), strings.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document))
	})
}

// checkTrust looks for the ConfigMap by which later releases are verified.
func (c *check) checkTrust() {
	var first *object
	for _, o := range c.objects {
		if _, ok := o.Object.GetAnnotations()[api.VerificationAnnotation]; !ok || !o.Is("", "ConfigMap") || o.reach.Never() {
			continue
		}
		if first == nil {
			first = o
			continue
		}
		if c.meet(first, o) && c.identity(first) != c.identity(o) {
			c.found.object("verification", o, "only the first such ConfigMap counts, the one in %s", first.place())
		}
	}
	if first == nil && len(c.objects) > 0 {
		c.found.file("verification-missing", payload.ReleaseDir, 0, "no ConfigMap with the annotation %s: who runs this release verifies the next one only with a trust file",
			api.VerificationAnnotation)
	}
}

// Keys of the ConfigMap by which a release carries its trust.
const (
	keyPrefix   = "verifier-public-key-"
	storePrefix = "store-"
)

// checkVerification looks at such a ConfigMap.
func checkVerification(o *object) {
	if _, ok := o.Object.GetAnnotations()[api.VerificationAnnotation]; !ok {
		return
	}
	found := &o.file.found
	if !o.Is("", "ConfigMap") {
		found.field("verification", o, annotationPath(api.VerificationAnnotation), "only a ConfigMap can carry it")
		return
	}
	data, _ := o.Object.Object["data"].(map[string]any)
	binary, _ := o.Object.Object["binaryData"].(map[string]any)
	keyrings, stores := len(binary), 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value, _ := data[key].(string)
		where := fieldPath{"data", key}
		switch {
		case strings.HasPrefix(key, keyPrefix):
			keyrings++
			if err := checkKeyring(value); err != nil {
				found.field("verification", o, where, "%s: is no OpenPGP keyring: %v", key, err)
			}
		case strings.HasPrefix(key, storePrefix):
			stores++
			u, err := url.Parse(strings.TrimSpace(value))
			if err != nil || !slices.Contains([]string{"https", "http", "file"}, u.Scheme) {
				found.field("verification", o, where, "%s: %q is no address of a store: it begins with https://, http:// or file://", key, value)
			}
		default:
			found.field("verification", o, where, "%s: nobody reads this key: it begins with %s or %s", key, keyPrefix, storePrefix)
		}
	}
	if keyrings == 0 {
		found.object("verification", o, "holds no key %s<name>: no release could be verified with it", keyPrefix)
	}
	if stores == 0 {
		found.object("verification", o, "holds no key %s<name>: it does not say where signatures are", storePrefix)
	}
}

func checkKeyring(text string) error {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(text))
	if err != nil {
		keys, err = openpgp.ReadKeyRing(strings.NewReader(text))
	}
	if err == nil && len(keys) == 0 {
		return fmt.Errorf("it holds no key")
	}
	return err
}

// checkUnused finds images that no file mentions.
func (c *check) checkUnused() {
	used := map[string]bool{}
	for _, f := range c.files {
		for _, m := range f.images {
			used[m.pullspec] = true
		}
	}
	f := c.file(payload.ReferencesFile)
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(c.references.images)) {
		if pullspec := c.references.images[name]; !used[pullspec] && digestOf(pullspec) != "" {
			unused = append(unused, name)
		}
	}
	for _, name := range unused {
		c.found.file("image-unused", payload.ReferencesFile, f.lineOfText(name), "no manifest mentions the image %s", name)
	}
}
