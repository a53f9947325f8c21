package apply_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// blank is the bundle, an empty line, of manifests that let an injector set the bundle.
const blank = "Cg=="

// The server accepts only certificates as bundles, except for a blank one.
var bundle, otherBundle = someCertificate(), someCertificate()

// someCertificate returns a self-signed certificate in the form of a CA bundle. Its base64 does not contain the placeholder of a namespace.
func someCertificate() string {
	for {
		a, err := authority.New("bundle")
		if err != nil {
			panic(err)
		}
		if text := base64.StdEncoding.EncodeToString(a.Certificate); !strings.Contains(text, "NS") {
			return text
		}
	}
}

const conversion = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com, annotations: {INJECT}}
spec:
  group: NS.example.com
  scope: Cluster
  names: {kind: Gadget, plural: gadgets, shortNames: [gt], categories: [all]}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: ` + blank + `, service: {namespace: x, name: svc}}}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string}, b: {type: string}}}}}]`

const webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: KIND
metadata: {name: NS, annotations: {INJECT}}
webhooks:
- {name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {caBundle: ` + blank + `, service: {namespace: x, name: svc}}, rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: ["*"]}]}
- {name: b.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {caBundle: ` + blank + `, service: {namespace: x, name: svc}}, rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: ["*"]}]}`

const apiService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.NS.aggregated.example.com, annotations: {INJECT}}
spec: {group: NS.aggregated.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, service: {namespace: x, name: svc}}`

// requestingServiceCA returns a manifest that requests the CA of the service CA operator.
func requestingServiceCA(text string) string {
	return strings.ReplaceAll(text, "INJECT", `service.beta.openshift.io/inject-cabundle: "true"`)
}

func certManaged(text string) string {
	return strings.ReplaceAll(text, "INJECT", `cert-manager.io/inject-ca-from: a/b`)
}

func validating(text string) string {
	return strings.ReplaceAll(text, "KIND", "ValidatingWebhookConfiguration")
}

func mutating(text string) string {
	return strings.ReplaceAll(text, "KIND", "MutatingWebhookConfiguration")
}

func TestExtensionKindsKeepInjectedBundles(t *testing.T) {
	injectedHooks := kindTest{
		foreign: `
webhooks:
- {name: a.example.com, clientConfig: {caBundle: ` + otherBundle + `}}
- {name: b.example.com, clientConfig: {caBundle: ` + otherBundle + `}}
- {name: x.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://x"}}`,
		tamper: `{webhooks: [{name: a.example.com, failurePolicy: Ignore, rules: []}, {name: b.example.com, $patch: delete}]}`,
		repaired: `
webhooks:
- {name: a.example.com, clientConfig: {caBundle: ` + otherBundle + `}, rules: [{resources: ["*"]}]}
- {name: x.example.com}
- {name: b.example.com, clientConfig: {caBundle: null}}`,
		updated: `
webhooks:
- {name: a.example.com, clientConfig: {caBundle: ` + otherBundle + `}}
- {name: x.example.com}`,
	}
	withHooks := func(name, first string) kindTest {
		tt := injectedHooks
		tt.name, tt.first = name, first
		tt.second = first[:strings.LastIndex(first, "\n- ")]
		return tt
	}
	runKindTests(t, []kindTest{
		{
			// CVO#870: the bundle of a CRD's conversion.
			name:    "keeps an injected bundle of a CRD's conversion",
			first:   requestingServiceCA(conversion),
			foreign: `{spec: {conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}}, metadata: {annotations: {x: "1"}}}`,
			tamper:  `{spec: {names: {shortNames: [other]}, conversion: {webhook: {clientConfig: {service: {name: z}}}}}}`,
			repaired: `
metadata: {annotations: {x: "1"}}
spec: {names: {shortNames: [gt]}, conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `, service: {name: svc}}}}}`,
			second: strings.NewReplacer("categories: [all]", "singular: gadget", "b: {type: string}", "c: {type: string}").Replace(requestingServiceCA(conversion)),
			updated: `
spec:
  names: {categories: null, singular: gadget}
  conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}
  versions: [{schema: {openAPIV3Schema: {properties: {a: {type: string}, b: null, c: {type: string}}}}}]`,
		},
		{
			name:     "reverts the bundle of a CRD's conversion without an injector",
			first:    strings.NewReplacer("INJECT", "", blank, bundle).Replace(conversion),
			foreign:  `{metadata: {annotations: {x: "1"}}}`,
			tamper:   `{spec: {conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}}}`,
			repaired: `{spec: {conversion: {webhook: {clientConfig: {caBundle: ` + bundle + `}}}}}`,
			second:   strings.NewReplacer("INJECT", "", "caBundle: "+blank+", ", "").Replace(conversion),
			updated:  `{spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: null}}}}}`,
		},
		{
			name:     "keeps the bundle of a CRD's conversion if the manifest has a blank one",
			first:    strings.ReplaceAll(conversion, "INJECT", ""),
			foreign:  `{spec: {conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}}}`,
			tamper:   `{spec: {names: {shortNames: [other]}}}`,
			repaired: `{spec: {conversion: {webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}}}`,
			second:   strings.NewReplacer("INJECT", "", "caBundle: "+blank+", ", "").Replace(conversion),
			updated:  `{spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: ` + otherBundle + `}}}}}`,
		},
		withHooks("keeps injected bundles and foreign webhooks of a ValidatingWebhookConfiguration", requestingServiceCA(validating(webhooks))),
		withHooks("keeps cert-manager's bundles and foreign webhooks of a MutatingWebhookConfiguration", certManaged(mutating(webhooks))),
		{
			name:     "keeps the injected bundle of an APIService",
			first:    requestingServiceCA(apiService),
			foreign:  `{spec: {caBundle: ` + otherBundle + `}}`,
			tamper:   `{spec: {versionPriority: 11, service: {name: z}}}`,
			repaired: `{spec: {versionPriority: 10, caBundle: ` + otherBundle + `, service: {name: svc}}}`,
			second:   strings.ReplaceAll(requestingServiceCA(apiService), "versionPriority: 10", "versionPriority: 12"),
			updated:  `{spec: {versionPriority: 12, caBundle: ` + otherBundle + `}}`,
		},
	})
}

func TestSecurityContextConstraintsUsersAreOwnedIfListed(t *testing.T) {
	serveCRD(t, fromAPI(t, "security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml"))
	runKindTests(t, []kindTest{
		{
			name: "keeps users of a SecurityContextConstraints if the manifest lists none",
			first: `
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: NS, annotations: {kubernetes.io/description: a}}
allowPrivilegedContainer: false
requiredDropCapabilities: [ALL]
volumes: [secret, configMap]
groups: ["system:authenticated"]
runAsUser: {type: MustRunAsRange}
seLinuxContext: {type: MustRunAs}`,
			foreign: `{users: ["system:serviceaccount:a:b"], metadata: {labels: {x: "1"}}}`,
			tamper:  `{allowPrivilegedContainer: true, allowHostPID: true, requiredDropCapabilities: [], volumes: ["*"], groups: [everybody], runAsUser: {type: RunAsAny, uid: 5}}`,
			repaired: `
metadata: {labels: {x: "1"}}
users: ["system:serviceaccount:a:b"]
groups: ["system:authenticated"]
allowPrivilegedContainer: false
allowHostPID: false
requiredDropCapabilities: [ALL]
volumes: [secret, configMap]
runAsUser: {type: MustRunAsRange}`,
			second: `
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: NS}
allowPrivilegedContainer: true
volumes: [secret]
runAsUser: {type: RunAsAny}`,
			updated: `
metadata: {annotations: null, labels: {x: "1"}}
users: ["system:serviceaccount:a:b"]
groups: null
allowPrivilegedContainer: true
requiredDropCapabilities: null
volumes: [secret]
seLinuxContext: null
runAsUser: {type: RunAsAny}`,
		},
		{
			name: "owns the users of a SecurityContextConstraints whose manifest lists them",
			first: `
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: NS}
users: []
groups: [a]`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{users: [intruder]}`,
			repaired: `{users: [], groups: [a]}`,
			second: `
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: NS}
users: [a]`,
			updated: `{users: [a], groups: null}`,
		},
	})
}

// imageStreams serves the kind as OpenShift's API server does, which merges tags by name.
const imageStreams = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: imagestreams.image.openshift.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: image.openshift.io
  scope: Namespaced
  names: {kind: ImageStream, plural: imagestreams}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              tags:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], x-kubernetes-preserve-unknown-fields: true, properties: {name: {type: string}}}`

// CVO#870: OpenShift's operator checks only the image and the import policy of a tag.
func TestEveryFieldOfAnImageStreamTagIsRepaired(t *testing.T) {
	serveCRD(t, parse(t, imageStreams))
	ns := namespace(t)
	manifestOf := func(tags string) *manifest.Manifest {
		return parse(t, "apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata: {name: a, namespace: "+ns+"}\nspec: {lookupPolicy: {local: false}, tags: ["+tags+"]}")
	}
	tag := func(name, policy string) string {
		return "{name: " + name + ", from: {kind: DockerImage, name: " + name + "}, importPolicy: {scheduled: true}, referencePolicy: {type: " + policy + "}}"
	}
	a, _ := connect(t, owner)
	first := manifestOf(tag("a", "Source") + ", " + tag("b", "Source"))
	must(t, a, first)
	assertQuiet(t, a, first)

	obj := live(t, first)
	tags := field(t, obj, "spec", "tags").([]any)
	tags[0].(map[string]any)["referencePolicy"] = map[string]any{"type": "Local"}
	tags[0].(map[string]any)["generation"] = int64(3)
	tags = append(tags, map[string]any{"name": "theirs"})
	require.NoError(t, unstructured.SetNestedSlice(obj.Object, tags, "spec", "tags"))
	require.NoError(t, otherClient(t).Update(t.Context(), obj))

	must(t, a, first)
	assertMatches(t, "spec: {tags: [{name: a, generation: 3, referencePolicy: {type: Source}}, {name: b}, {name: theirs}]}", live(t, first).Object)
	second := manifestOf(tag("a", "Local") + ", " + tag("c", "Local"))
	must(t, a, second)
	assertQuiet(t, a, second)
	assertMatches(t, "spec: {tags: [{name: a, referencePolicy: {type: Local}}, {name: theirs}, {name: c}]}", live(t, first).Object)
}

func TestDroppingAStoredVersionOfACRDIsReported(t *testing.T) {
	const versions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: storeds.stored.example.com}
spec:
  group: stored.example.com
  scope: Cluster
  names: {kind: Stored, plural: storeds}
  versions: [VERSIONS]`
	version := func(name, storage string) string {
		return "{name: " + name + ", served: true, storage: " + storage + ", schema: {openAPIV3Schema: {type: object}}}"
	}
	manifestOf := func(list string) *manifest.Manifest { return parse(t, strings.ReplaceAll(versions, "VERSIONS", list)) }
	serveCRD(t, manifestOf(version("v1alpha1", "true")))
	a, _ := connect(t, owner)
	both := manifestOf(version("v1alpha1", "false") + ", " + version("v1", "true"))
	must(t, a, both)
	require.Eventually(t, func() bool {
		stored, _, _ := unstructured.NestedStringSlice(live(t, both).Object, "status", "storedVersions")
		return len(stored) == 2
	}, time.Minute, 20*time.Millisecond)

	_, err := a.Apply(t.Context(), manifestOf(version("v1", "true")), release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
	require.ErrorContains(t, err, `v1alpha1 was previously a storage version, and must remain in spec.versions until a storage migration`)
	const patch = `{"status":{"storedVersions":["v1"]}}`
	assert.Equal(t, "keep v1alpha1 in spec.versions of the release with served: false; or store another version, rewrite all objects of the kind, "+
		"and run: kubectl patch crd storeds.stored.example.com --subresource status --type merge -p '"+patch+"'", failed.Remedy)
	assertQuiet(t, a, both)

	_, err = a.Apply(t.Context(), manifestOf(version("v1alpha1", "true")), release.Updating)
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "the cluster stores the objects as v1: keep this version in spec.versions of the release with served: false", failed.Remedy,
		"without it, the objects would be unreadable")

	must(t, a, manifestOf(strings.ReplaceAll(version("v1alpha1", "false"), "served: true", "served: false")+", "+version("v1", "true")))
	require.NoError(t, otherClient(t).Status().Patch(t.Context(), live(t, both), client.RawPatch(types.MergePatchType, []byte(patch))))
	must(t, a, manifestOf(version("v1", "true")))
}
