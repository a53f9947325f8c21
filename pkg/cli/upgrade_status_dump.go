package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/insight"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	dumpSuffix = "-cv.yaml"
	// dumpFileBytes bounds one file of a dump: the MachineConfigs of a large cluster have some ten megabytes.
	dumpFileBytes = 256 << 20
	// dumpDelay is what the original adds to the newest time of a dump to have a "now".
	dumpDelay = 368975 * time.Nanosecond
)

// readDump reads the file of a ClusterVersion and those beside it that are named alike.
func readDump(file string) (insight.Input, error) {
	cut := strings.LastIndex(file, dumpSuffix)
	sibling := func(suffix string) string { return file[:cut] + suffix + file[cut+len(dumpSuffix):] }
	none := ""
	in := insight.Input{AsOriginal: true, ConfigOperatorImage: &none}
	var err error
	if in.ClusterVersion, err = dumpedVersion(file); err != nil {
		return in, err
	}
	s := sections{in: &in}
	in.Operators, err = readObjects[configv1.ClusterOperator](sibling("-co.yaml"))
	s.note(err, insight.SectionOperators)
	in.Pools, err = readObjects[mcfgv1.MachineConfigPool](sibling("-mcp.yaml"))
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	in.Nodes, err = readObjects[corev1.Node](sibling("-node.yaml"))
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	configs, err := readObjects[metav1.PartialObjectMetadata](sibling("-mc.yaml"))
	s.note(err, insight.SectionWorkers)
	in.Releases = releasesOf(configs)

	deployments, err := readObjects[appsv1.Deployment](sibling("-mco-deployment.yaml"))
	if !errors.Is(err, fs.ErrNotExist) {
		s.note(err, insight.SectionConfigOperator)
	}
	for i := range deployments {
		if image := configOperatorImage(&deployments[i]); image != nil {
			in.ConfigOperatorImage = image
		}
	}
	alerts, err := readFile(sibling("-alerts.json"))
	if err == nil {
		in.Alerts, err = parseAlerts(alerts)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.note(err, insight.SectionHealth)
	}
	in.Now = newestTransition(in)
	return in, nil
}

// dumpedVersion reads the file of a ClusterVersion.
func dumpedVersion(file string) (*configv1.ClusterVersion, error) {
	versions, err := readObjects[configv1.ClusterVersion](file)
	if err != nil {
		return nil, err
	}
	if len(versions) != 1 {
		return nil, fmt.Errorf("%s: want one ClusterVersion, not %d", file, len(versions))
	}
	return &versions[0], nil
}

// readMustGather reads what 'oc adm must-gather' has put into a folder, or into the one folder of an image in it.
func readMustGather(dir string) (insight.Input, error) {
	var in insight.Input
	const kinds = "cluster-scoped-resources"
	root := dir
	if _, err := os.Stat(filepath.Join(root, kinds)); err != nil {
		found, err := filepath.Glob(filepath.Join(dir, "*", kinds))
		if err != nil || len(found) != 1 {
			return in, fmt.Errorf("%s: not one must-gather, which has a folder %s: %d found", dir, kinds, len(found))
		}
		root = filepath.Dir(found[0])
	}
	versions, err := readFolder[configv1.ClusterVersion](root, kinds, "config.openshift.io", "clusterversions")
	if err != nil {
		return in, err
	}
	if len(versions) != 1 {
		return in, fmt.Errorf("%s: want one ClusterVersion, not %d", root, len(versions))
	}
	in.ClusterVersion = &versions[0]

	s := sections{in: &in}
	in.Operators, err = readFolder[configv1.ClusterOperator](root, kinds, "config.openshift.io", "clusteroperators")
	s.note(err, insight.SectionOperators)
	in.Pools, err = readFolder[mcfgv1.MachineConfigPool](root, kinds, "machineconfiguration.openshift.io", "machineconfigpools")
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	in.Nodes, err = readFolder[corev1.Node](root, kinds, "core", "nodes")
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	configs, err := readFolder[metav1.PartialObjectMetadata](root, kinds, "machineconfiguration.openshift.io", "machineconfigs")
	s.note(err, insight.SectionWorkers)
	in.Releases = releasesOf(configs)
	if needsConfigOperatorImage(in.Operators) {
		deployments, err := readObjects[appsv1.Deployment](filepath.Join(root, "namespaces", configOperatorNamespace, "apps", "deployments.yaml"))
		s.note(err, insight.SectionConfigOperator)
		for i := range deployments {
			if deployments[i].Name == configOperatorName {
				in.ConfigOperatorImage = configOperatorImage(&deployments[i])
			}
		}
	}
	in.Alerts, err = gatheredAlerts(root)
	s.note(err, insight.SectionHealth)
	in.Now = newestTransition(in)
	return in, nil
}

// gatheredAlerts are those of the alerting rules that a must-gather has from Prometheus.
func gatheredAlerts(root string) ([]insight.Alert, error) {
	file := filepath.Join(root, "monitoring", "prometheus", "rules.json")
	data, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this must-gather does not tell which alerts fired: it has no monitoring/prometheus/rules.json")
	}
	if err != nil {
		return nil, err
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Alerts []insight.Alert `json:"alerts"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &rules); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var alerts []insight.Alert
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alerts...)
		}
	}
	return alerts, nil
}

// sections notes for which parts of the assessment something could not be read.
type sections struct{ in *insight.Input }

func (s sections) note(err error, sections ...insight.Section) {
	if err == nil {
		return
	}
	for _, section := range sections {
		s.in.Missing = append(s.in.Missing, insight.Missing{Section: section, Reason: err.Error(), Absent: errors.Is(err, errAbsent)})
	}
}

// newestTransition is the latest moment of which a dump tells.
func newestTransition(in insight.Input) time.Time {
	conditions := slices.Clone(in.ClusterVersion.Status.Conditions)
	for i := range in.Operators {
		conditions = append(conditions, in.Operators[i].Status.Conditions...)
	}
	var newest time.Time
	for _, c := range conditions {
		if c.LastTransitionTime.After(newest) {
			newest = c.LastTransitionTime.Time
		}
	}
	return newest.Add(dumpDelay)
}

func releasesOf(configs []metav1.PartialObjectMetadata) map[string]string {
	releases := map[string]string{}
	for i := range configs {
		if release := configs[i].Annotations[insight.ReleaseAnnotation]; release != "" {
			releases[configs[i].Name] = release
		}
	}
	return releases
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, dumpFileBytes+1))
	if err == nil && len(data) > dumpFileBytes {
		err = fmt.Errorf("%s is larger than %d MiB", path, dumpFileBytes>>20)
	}
	return data, err
}

func readObjects[T any](path string) ([]T, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects[T](data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

func readFolder[T any](root string, path ...string) ([]T, error) {
	dir := filepath.Join(append([]string{root}, path...)...)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []T
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".yaml" {
			continue
		}
		objects, err := readObjects[T](filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// parseObjects reads a document that is one object, or a list of them.
func parseObjects[T any](data []byte) ([]T, error) {
	if err := manifest.CheckAliases(data); err != nil {
		return nil, err
	}
	var list struct {
		Kind  string             `json:"kind"`
		Items *[]json.RawMessage `json:"items"`
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	items := []json.RawMessage{text}
	switch {
	case list.Items != nil:
		items = *list.Items
	case strings.HasSuffix(list.Kind, "List"):
		items = nil
	case list.Kind == "":
		return nil, errors.New("no object, and no list of objects")
	}
	objects := make([]T, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &objects[i]); err != nil {
			return nil, fmt.Errorf("object %d: %w", i+1, err)
		}
	}
	return objects, nil
}

// parseAlerts reads an answer of Prometheus's /api/v1/alerts.
func parseAlerts(data []byte) ([]insight.Alert, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Alerts []insight.Alert `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("reading what Prometheus says: %w", err)
	}
	if answer.Status == "error" {
		return nil, fmt.Errorf("Prometheus says: %s", oneLine(answer.Error)) //nolint:staticcheck // its name
	}
	return answer.Data.Alerts, nil
}
