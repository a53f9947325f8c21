package kubelet

import (
	"bytes"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The kubelet rejects a file without these.
const (
	fileAPIVersion = "kubelet.config.k8s.io/v1beta1"
	fileKind       = "KubeletConfiguration"
)

// rejected lists the settings that KubeletConfigs must not contain: they have to fit to the node's operating system, its container runtime or
// the cluster. A wrong value can make the node unusable. The list is the one of OpenShift.
var rejected = [][]string{
	{"cgroupDriver"}, {"clusterDNS"}, {"clusterDomain"}, {"failSwapOn"}, {"featureGates"}, {"memorySwap", "swapBehavior"},
}

// checker checks the KubeletConfig called name.
type checker struct{ name string }

func (c checker) errorf(field, remedy, format string, args ...any) *Error {
	return &Error{Name: c.name, Path: field, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
}

// file returns the content of the file for a spec. The same spec always has the same content.
func (c checker) file(spec mcfgv1.KubeletConfigSpec, controlPlane bool) ([]byte, *Error) {
	if spec.AutoSizingReserved != nil && *spec.AutoSizingReserved {
		return nil, c.errorf("spec.autoSizingReserved", "set spec.kubeletConfig.systemReserved instead", "is not supported")
	}
	var settings map[string]any
	if spec.KubeletConfig != nil && len(bytes.TrimSpace(spec.KubeletConfig.Raw)) > 0 {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(spec.KubeletConfig.Raw, &settings); err != nil {
			return nil, c.errorf("spec.kubeletConfig", "write the settings as an object", "does not parse: %v", err)
		}
	}
	if err := c.check(settings, controlPlane); err != nil {
		return nil, err
	}
	if settings == nil {
		settings = map[string]any{}
	}
	settings["apiVersion"], settings["kind"] = fileAPIVersion, fileKind
	if err := c.setTLS(settings, spec.TLSSecurityProfile); err != nil {
		return nil, err
	}
	if spec.LogLevel != nil {
		if has(settings, "logging", "verbosity") {
			return nil, c.errorf("spec.kubeletConfig.logging.verbosity", "remove one of the two", "is the same setting as spec.logLevel")
		}
		if err := unstructured.SetNestedField(settings, int64(*spec.LogLevel), "logging", "verbosity"); err != nil {
			return nil, c.errorf("spec.kubeletConfig.logging", "correct or remove it", "is not an object")
		}
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, c.errorf("spec.kubeletConfig", "correct it", "cannot be written as YAML: %v", err)
	}
	return text, nil
}

// check rejects settings that the kubelet would not accept or that must not differ from the node's.
func (c checker) check(settings map[string]any, controlPlane bool) *Error {
	for _, own := range []struct{ field, value string }{{"apiVersion", fileAPIVersion}, {"kind", fileKind}} {
		if found, ok := settings[own.field]; ok && found != own.value {
			return c.errorf("spec.kubeletConfig."+own.field, "remove it", "must be %s", own.value)
		}
	}
	for _, fields := range rejected {
		if has(settings, fields...) {
			return c.errorf("spec.kubeletConfig."+strings.Join(fields, "."), "remove it", "is not allowed: the node's own configuration decides about it")
		}
	}
	if has(settings, "staticPodPath") && controlPlane {
		return c.errorf("spec.kubeletConfig.staticPodPath", "remove it, or select only pools of workers", "is not allowed on control-plane nodes, which run static pods")
	}
	return nil
}

// has reports whether a setting is present, even if it is null: null removes the setting of the node.
func has(settings map[string]any, fields ...string) bool {
	_, found, err := unstructured.NestedFieldNoCopy(settings, fields...)
	return found && err == nil
}
