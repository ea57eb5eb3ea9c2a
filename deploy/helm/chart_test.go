// Package helm lints and renders the chart in every form, and validates the objects against the
// types of Kubernetes and the definitions of KEDA, without a cluster. It is a module of its own,
// because Helm and Kubernetes are large.
package helm

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint/rules"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const chartDir = "exoswarm"

// forms are values with which the chart renders, and what the result must have.
var forms = map[string]struct {
	values string
	want   []string
	not    []string
}{
	"default": {"auth: {secret: s}", []string{
		"nvidia.com/gpu: 1", "--route=r-nats-2.r-nats-peers:6222", "--replicas=3", "--require-gpu",
		`"exoswarm/gpuagent-cuda:latest"`,
		"nats://r-nats:4222", "key: route-token",
	}, []string{"kind: ScaledObject", "NetworkPolicy", "--tls-cert", "NATS_CA"}},
	"probes of the servers": {
		"auth: {secret: s}",
		[]string{
			"--monitor=0.0.0.0:8222", "{name: monitor, containerPort: 8222}",
			"httpGet: {path: '/healthz?js-server-only=true', port: monitor}",
			"httpGet: {path: '/healthz?js-enabled-only=true', port: monitor}",
		},
		[]string{"tcpSocket: {port: nats}", "port: 8222"}, // no service leads there
	},
	"one server": {
		"{auth: {secret: s}, nats: {replicas: 1}}",
		[]string{"--replicas=1"},
		[]string{"--route", "route-token"},
	},
	"servers elsewhere": {
		"{auth: {secret: s}, nats: {enabled: false, url: 'tls://n:4222'}, streamReplicas: 3}",
		[]string{"tls://n:4222", "--replicas=3"},
		[]string{"name: r-nats"},
	},
	"host device": {
		"{auth: {secret: s}, gpuagent: {gpus: 0}}",
		[]string{"--device=host", `"exoswarm/gpuagent:latest"`},
		[]string{"nvidia.com/gpu", "--require-gpu"},
	},
	"KEDA": {
		"{auth: {secret: s}, keda: {enabled: true}}",
		[]string{
			`valueLocation: "exoswarm_scale_demand{pool=\"cpu\"}"`, `targetValue: "4"`, "minReplicaCount: 1",
			`url: "http://r-ui.n:9466/metrics"`,
		},
		[]string{`pool=\"gpu\"`},
	},
	"KEDA for both": {
		"{auth: {secret: s}, keda: {enabled: true, gpuagent: {enabled: true, min: 0}}}",
		[]string{
			`exoswarm_scale_demand{pool=\"gpu\"}`, "kind: StatefulSet, name: r-gpuagent", "minReplicaCount: 0",
		},
		nil,
	},
	"all": {
		"{auth: {secret: s}, keda: {enabled: true, gpuagent: {enabled: true}}, " +
			"networkPolicy: {enabled: true, metricsFrom: [monitoring]}, ui: {tlsSecret: t, loginTokenSecret: l}, " +
			"image: {tag: v1, pullSecrets: [{name: p}]}, cpuagent: {args: ['--egress=*.example.com'], " +
			"env: [{name: EXOSWARM_SECRET_T, value: x}], " +
			"volumes: [{name: d, persistentVolumeClaim: {claimName: d}}], " +
			"volumeMounts: [{name: d, mountPath: /d}], nodeSelector: {a: b}, tolerations: [{key: k}]}, " +
			"gpuagent: {runtimeClassName: nvidia, args: ['--prefetch=auto'], storage: {class: fast}, " +
			"nodeSelector: {a: b}, tolerations: [{key: k}]}, " +
			"nats: {tlsSecret: certs, storage: {class: fast}, nodeSelector: {a: b}, tolerations: [{key: k}]}}",
		[]string{
			"--tls-cert=/etc/exoswarm-tls/tls.crt", "tls://r-nats:4222", "name: NATS_CA", "--login-token-file=",
			`"exoswarm/exoswarm:v1"`, "kubernetes.io/metadata.name",
		},
		nil,
	},
}

// TestReleased: the chart of the release in the folder EXOSWARM_RELEASE names the images of that
// release.
func TestReleased(t *testing.T) {
	dir := os.Getenv("EXOSWARM_RELEASE")
	if dir == "" {
		t.Skip("no folder in EXOSWARM_RELEASE: make snapshot makes a release")
	}
	all, err := filepath.Glob(filepath.Join(dir, "exoswarm-*.tgz"))
	if err != nil || len(all) != 1 {
		t.Fatalf("the charts are %v, %v", all, err)
	}
	c, err := loader.Load(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(all[0]), "exoswarm-"), ".tgz")
	if c.Metadata.AppVersion != version {
		t.Errorf("the chart is of %s, the release %s", c.Metadata.AppVersion, version)
	}
	objects, err := rendered(c, "auth: {secret: s}")
	if err != nil {
		t.Fatal(err)
	}
	image := `"exoswarm/cpuagent:` + version + `"`
	if !strings.Contains(objects["exoswarm/templates/cpuagent.yaml"], image) {
		t.Errorf("the agents do not run %s:\n%s", image, objects["exoswarm/templates/cpuagent.yaml"])
	}
}

// render returns the objects of the chart for a release r in namespace n.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return rendered(c, values)
}

func rendered(c *chart.Chart, values string) (map[string]string, error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{
		Name: "r", Namespace: "n", Revision: 1, IsInstall: true,
	}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

// TestForms: in every form the chart renders objects that Kubernetes and KEDA know in every field,
// and pods without rights.
func TestForms(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	scaled := scaledObject(t)
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			files, err := render(t, form.values)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if filepath.Ext(file) != ".yaml" {
					continue
				}
				text.WriteString(files[file])
				for _, one := range strings.Split(files[file], "\n---\n") {
					var any map[string]any
					if err := yaml.UnmarshalStrict([]byte(one), &any); err != nil {
						t.Fatalf("%s: %v\n%s", file, err, one)
					}
					if len(any) == 0 {
						continue
					}
					if any["kind"] == "ScaledObject" {
						if err := scaled.Validate(any); err != nil {
							t.Errorf("%s: %v", file, err)
						}
						continue
					}
					object, _, err := strict.Decode([]byte(one), nil, nil)
					if err != nil {
						t.Errorf("%s: %v\n%s", file, err, one)
						continue
					}
					inspect(t, object)
				}
			}
			for _, s := range form.want {
				if !strings.Contains(text.String(), s) {
					t.Errorf("the objects lack %s", s)
				}
			}
			for _, s := range form.not {
				if strings.Contains(text.String(), s) {
					t.Errorf("the objects have %s", s)
				}
			}
		})
	}
}

// inspect checks the pods of an object: their rights, and that the programs know all flags.
func inspect(t *testing.T, object runtime.Object) {
	t.Helper()
	var pod corev1.PodSpec
	switch o := object.(type) {
	case *appsv1.Deployment:
		pod = o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		pod = o.Spec.Template.Spec
	case *batchv1.Job:
		pod = o.Spec.Template.Spec
	default:
		return
	}
	volumes := map[string]bool{"data": true} // data is a claim
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil ||
		pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("a pod has rights: %+v", pod)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil ||
			*s.AllowPrivilegeEscalation || s.Capabilities == nil ||
			!slices.Contains(s.Capabilities.Drop, "ALL") {
			t.Errorf("container %s has rights: %+v", c.Name, s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("container %s has no limit of memory or no request of processors", c.Name)
		}
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.HTTPGet != nil && !ports[p.HTTPGet.Port.String()] {
				t.Errorf("container %s is probed at port %s, which it has not", c.Name, p.HTTPGet.Port.String())
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("container %s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		dir := os.Getenv("EXOSWARM_COMMANDS")
		if dir == "" {
			continue
		}
		program := map[string]string{"cpuagent": "cpuagent", "gpuagent": "gpuagent"}[c.Name]
		if program == "" {
			program = "exoswarm"
		}
		// Flags are read before help is shown, so an unknown one is an error.
		cmd := exec.Command(filepath.Join(dir, program), append(c.Args, "--help")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v\n%s", program, strings.Join(c.Args, " "), err, out)
		}
	}
}

// TestContradictions: values that contradict each other, or are missing, are an error at rendering
// that names them.
func TestContradictions(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"{}", "auth.secret is missing: name a Secret with the files of `exoswarm auth init --yes`"},
		{"{nats: {url: 'nats://n'}}", "nats.url names servers of another place, and nats.enabled is true"},
		{"{nats: {enabled: false, url: 'nats://n', tlsSecret: t}}", "nats.url begins with nats://: write tls://"},
		{"{nats: {enabled: false}}", "nats.enabled is false, and nats.url is missing"},
		{"{nats: {replicas: 1}, streamReplicas: 3}", "streamReplicas 3: there are 1 servers"},
		{"{keda: {enabled: true}, ui: {enabled: false}}", "keda.enabled needs ui.enabled"},
		{"{keda: {enabled: true, cpuagent: {min: 5, max: 2}}}", "keda.cpuagent: min 5 is more than max 2"},
		{"{keda: {gpuagent: {enabled: true}}}", "keda.gpuagent.enabled needs keda.enabled"},
		{"{gpuagent: {resources: {limits: {'nvidia.com/gpu': 1}}}}", "gpuagent.resources.limits has nvidia.com/gpu"},
		{"{gpuagent: {args: ['--device=host']}}", "gpuagent.args has --device"},
		{"{nats: {replicas: 2}}", "/nats/replicas"},
		{"{keda: {enabled: true, cpuagent: {min: 0}}}", "/keda/cpuagent/min"},
		{"{cpuagent: {replica: 3}}", "'replica' not allowed"},
		{"{gpuagent: {storage: {size: 10}}}", "/gpuagent/storage/size"},
		{"{cpuagent: {terminationGracePeriodSeconds: 10}}", "/cpuagent/terminationGracePeriodSeconds"},
	} {
		values := strings.Replace(c.values, "{", "{auth: {secret: s}, ", 1)
		if c.values == "{}" {
			values = c.values // also without the secret
		}
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", values, err, c.want)
		}
	}
}

// TestLint: the chart has no finding of helm lint.
func TestLint(t *testing.T) {
	linter := support.Linter{ChartDir: chartDir}
	rules.Chartfile(&linter)
	rules.ValuesWithOverrides(&linter, map[string]any{"auth": map[string]any{"secret": "s"}})
	rules.TemplatesWithKubeVersion(&linter, map[string]any{"auth": map[string]any{"secret": "s"}}, "n", nil)
	for _, m := range linter.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// TestDemand: the metric that KEDA asks for is one that the dashboard exports.
func TestDemand(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no list of metrics")
	}
	if err != nil || !strings.Contains(string(text), "`exoswarm_scale_demand`") {
		t.Errorf("docs/metrics.md: error %v, want exoswarm_scale_demand", err)
	}
}

// TestUnknownFields: a field that Kubernetes or KEDA does not know is found.
func TestUnknownFields(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := strict.Decode([]byte("{apiVersion: v1, kind: Service, spec: {prots: []}}"), nil, nil); err == nil {
		t.Error("a service with prots is accepted")
	}
	var object any
	if err := yaml.Unmarshal([]byte("{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, spec: {minReplicaCont: 1, "+
		"scaleTargetRef: {name: x}, triggers: [{type: cpu, metadata: {a: b}}]}}"), &object); err != nil {
		t.Fatal(err)
	}
	if err := scaledObject(t).Validate(object); err == nil || !strings.Contains(err.Error(), "minReplicaCont") {
		t.Errorf("a ScaledObject with minReplicaCont: error %v", err)
	}
}

// scaledObject returns the definition of KEDA, which allows no unknown fields.
func scaledObject(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/keda.sh_scaledobjects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	closeObjects(schema)
	if meta, ok := schema["properties"].(map[string]any); ok {
		meta["metadata"] = map[string]any{"type": "object"}
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	if err := c.AddResource("scaledobject.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("scaledobject.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closeObjects forbids unknown fields, as the server does with strict validation, and translates
// what OpenAPI has besides JSON schema.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, one := range s {
			closeObjects(one)
		}
	case map[string]any:
		_, open := s["additionalProperties"]
		_, has := s["properties"]
		if keep, _ := s["x-kubernetes-preserve-unknown-fields"].(bool); has && !open && !keep {
			s["additionalProperties"] = false
		}
		for _, key := range slices.Sorted(maps.Keys(s)) {
			closeObjects(s[key])
		}
	}
}
