package apply_test

import "testing"

func TestWorkloadKindsKeepForeignFields(t *testing.T) {
	runKindTests(t, []kindTest{
		{
			name: "keeps an autoscaler's replicas, a sidecar and a restart of a Deployment",
			first: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NS, namespace: NS}
spec:
  progressDeadlineSeconds: 60
  selector: {matchLabels: {app: a}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {app: a, old: "1"}, annotations: {old: "1"}}
    spec:
      tolerations: [{key: a, operator: Exists}, {key: old, operator: Exists}]
      nodeSelector: {a: "1", old: "1"}
      securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}
      initContainers: [{name: init, image: init:1}]
      containers:
      - name: main
        image: main:1
        env: [{name: A, value: "1"}, {name: OLD, value: "1"}]
        ports: [{name: web, containerPort: 80}, {name: old, containerPort: 81}]
        securityContext: {capabilities: {add: [NET_ADMIN, SYS_TIME], drop: [ALL]}}
        volumeMounts: [{name: v, mountPath: /v}, {name: old, mountPath: /old}]
        resources: {requests: {cpu: 10m, memory: 10Mi}}
      - {name: second, image: second:1}
      volumes: [{name: v, emptyDir: {}}, {name: old, configMap: {name: c}}]`,
			foreign: `
spec:
  replicas: 7
  template:
    metadata: {annotations: {kubectl.kubernetes.io/restartedAt: now}}
    spec:
      containers:
      - {name: sidecar, image: mesh:1}
      - {name: main, env: [{name: X, value: "1"}], volumeMounts: [{name: mesh, mountPath: /mesh}]}
      volumes: [{name: mesh, emptyDir: {}}]`,
			tamper: `
spec:
  strategy: {rollingUpdate: {maxUnavailable: 50%}}
  template:
    spec:
      tolerations: []
      nodeSelector: {a: "2"}
      initContainers: [{name: init, $patch: delete}]
      containers:
      - {name: second, $patch: delete}
      - name: main
        image: evil:1
        env: [{name: A, value: "2"}, {name: OLD, $patch: delete}]
        ports: [{containerPort: 80, $patch: delete}]
        securityContext: {capabilities: {add: [SYS_ADMIN]}}
        volumeMounts: [{mountPath: /v, name: old}]
        resources: {requests: {cpu: 1}}`,
			repaired: `
spec:
  replicas: 7
  progressDeadlineSeconds: 60
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {app: a, old: "1"}, annotations: {old: "1", kubectl.kubernetes.io/restartedAt: now}}
    spec:
      tolerations: [{key: a}, {key: old}]
      nodeSelector: {a: "1", old: "1"}
      initContainers: [{name: init, image: init:1}]
      containers:
      - name: main
        image: main:1
        env: [{name: X}, {name: A, value: "1"}, {name: OLD, value: "1"}]
        ports: [{name: web}, {name: old}]
        securityContext: {capabilities: {add: [NET_ADMIN, SYS_TIME], drop: [ALL]}}
        volumeMounts: [{name: mesh}, {name: v, mountPath: /v}, {name: old}]
        resources: {requests: {cpu: 10m, memory: 10Mi}}
      - {name: sidecar}
      - {name: second, image: second:1}`,
			second: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NS, namespace: NS}
spec:
  selector: {matchLabels: {app: a}}
  minReadySeconds: 5
  template:
    metadata: {labels: {app: a}}
    spec:
      tolerations: [{key: a, operator: Exists}]
      nodeSelector: {a: "1"}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
      containers:
      - name: main
        image: main:2
        env: [{name: A, value: "1"}, {name: NEW, value: "1"}]
        ports: [{name: web, containerPort: 80}]
        securityContext: {capabilities: {drop: [ALL]}}
        volumeMounts: [{name: v, mountPath: /v}]
        startupProbe: {tcpSocket: {port: 80}}
      volumes: [{name: v, emptyDir: {}}]`,
			updated: `
spec:
  replicas: 7
  minReadySeconds: 5
  progressDeadlineSeconds: 600
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: a, old: null}, annotations: {old: null, kubectl.kubernetes.io/restartedAt: now}}
    spec:
      tolerations: [{key: a}]
      nodeSelector: {a: "1", old: null}
      securityContext: {sysctls: null}
      initContainers: null
      topologySpreadConstraints: [{topologyKey: zone}]
      containers:
      - name: main
        image: main:2
        env: [{name: X}, {name: A}, {name: NEW}]
        ports: [{name: web}]
        securityContext: {capabilities: {add: null, drop: [ALL]}}
        volumeMounts: [{name: mesh}, {name: v}]
        startupProbe: {tcpSocket: {port: 80}}
        resources: {requests: null}
      - {name: sidecar}
      volumes: [{name: v}, {name: mesh}]`,
		},
		{
			name: "owns the replicas of a Deployment if its manifest sets them",
			first: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NS, namespace: NS}
spec: {replicas: 2, paused: false, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}`,
			foreign:  `{metadata: {annotations: {deployment.kubernetes.io/revision: "1"}}}`,
			tamper:   `{spec: {replicas: 0, paused: true}}`,
			repaired: `{metadata: {annotations: {deployment.kubernetes.io/revision: "1"}}, spec: {replicas: 2, paused: null}}`,
			second: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NS, namespace: NS}
spec: {replicas: 3, selector: {matchLabels: {app: a}}, strategy: {type: Recreate}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}`,
			updated: `{metadata: {annotations: {deployment.kubernetes.io/revision: "1"}}, spec: {replicas: 3, strategy: {type: Recreate, rollingUpdate: null}}}`,
		},
		{
			// OpenShift's operator ignores the update strategy of a DaemonSet.
			name: "owns the update strategy of a DaemonSet",
			first: `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NS, namespace: NS}
spec:
  selector: {matchLabels: {app: a}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
  minReadySeconds: 3
  template: {metadata: {labels: {app: a}}, spec: {hostPID: true, hostNetwork: true, containers: [{name: c, image: i}]}}`,
			foreign:  `{metadata: {annotations: {deprecated.daemonset.template.generation: "9"}}, spec: {template: {spec: {containers: [{name: x, image: i}]}}}}`,
			tamper:   `{spec: {minReadySeconds: 0, updateStrategy: {type: OnDelete, rollingUpdate: null}, template: {spec: {hostPID: false, containers: [{name: c, image: j}]}}}}`,
			repaired: `{spec: {minReadySeconds: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}, template: {spec: {hostPID: true, containers: [{name: c, image: i}, {name: x}]}}}}`,
			second: `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NS, namespace: NS}
spec:
  selector: {matchLabels: {app: a}}
  updateStrategy: {type: OnDelete}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}`,
			updated: `{spec: {minReadySeconds: null, updateStrategy: {type: OnDelete, rollingUpdate: null}, template: {spec: {hostPID: null, hostNetwork: null, containers: [{name: c, image: i}, {name: x}]}}}}`,
		},
		{
			name: "owns the mutable fields of a StatefulSet",
			first: `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NS, namespace: NS}
spec:
  serviceName: a
  selector: {matchLabels: {app: a}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}
  volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}}]`,
			foreign:  `{spec: {replicas: 3, template: {metadata: {annotations: {x: "1"}}}}}`,
			tamper:   `{spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain}, template: {spec: {containers: [{name: c, image: j}]}}}}`,
			repaired: `{spec: {replicas: 3, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, template: {metadata: {annotations: {x: "1"}}, spec: {containers: [{image: i}]}}}}`,
			second: `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NS, namespace: NS}
spec:
  serviceName: a
  selector: {matchLabels: {app: a}}
  updateStrategy: {type: OnDelete}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i2}]}}
  volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]`,
			updated: `{spec: {replicas: 3, updateStrategy: {type: OnDelete, rollingUpdate: null}, persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain}, template: {metadata: {annotations: {x: "1"}}, spec: {containers: [{image: i2}]}}}}`,
		},
		{
			name: "owns the schedule and the jobs of a CronJob",
			first: `
apiVersion: batch/v1
kind: CronJob
metadata: {name: NS, namespace: NS}
spec:
  schedule: "* * * * *"
  concurrencyPolicy: Forbid
  failedJobsHistoryLimit: 5
  jobTemplate: {spec: {backoffLimit: 2, ttlSecondsAfterFinished: 10, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`,
			foreign:  `{metadata: {labels: {x: "1"}}, spec: {suspend: true}}`,
			tamper:   `{spec: {schedule: "0 * * * *", concurrencyPolicy: Replace, jobTemplate: {spec: {backoffLimit: 9, template: {spec: {containers: [{name: c, image: j}]}}}}}}`,
			repaired: `{metadata: {labels: {x: "1"}}, spec: {suspend: true, schedule: "* * * * *", concurrencyPolicy: Forbid, jobTemplate: {spec: {backoffLimit: 2, template: {spec: {containers: [{image: i}]}}}}}}`,
			second: `
apiVersion: batch/v1
kind: CronJob
metadata: {name: NS, namespace: NS}
spec:
  schedule: "1 * * * *"
  timeZone: Etc/UTC
  jobTemplate: {spec: {backoffLimit: 3, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}`,
			updated: `{spec: {suspend: true, schedule: "1 * * * *", timeZone: Etc/UTC, concurrencyPolicy: Allow, failedJobsHistoryLimit: 1, jobTemplate: {spec: {backoffLimit: 3, ttlSecondsAfterFinished: null, template: {spec: {restartPolicy: OnFailure}}}}}}`,
		},
		{
			name: "owns the mutable fields of a Job",
			first: `
apiVersion: batch/v1
kind: Job
metadata: {name: NS, namespace: NS, labels: {a: "1", old: "1"}}
spec: {backoffLimit: 2, ttlSecondsAfterFinished: 10, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{metadata: {labels: {a: "2"}}, spec: {backoffLimit: 9, ttlSecondsAfterFinished: 99}}`,
			repaired: `{metadata: {labels: {a: "1", x: "1"}}, spec: {backoffLimit: 2, ttlSecondsAfterFinished: 10}}`,
			second: `
apiVersion: batch/v1
kind: Job
metadata: {name: NS, namespace: NS, labels: {a: "1"}}
spec: {backoffLimit: 3, activeDeadlineSeconds: 60, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`,
			updated: `{metadata: {labels: {a: "1", x: "1", old: null}}, spec: {backoffLimit: 3, activeDeadlineSeconds: 60, ttlSecondsAfterFinished: null}}`,
		},
		{
			name: "owns a PodDisruptionBudget",
			first: `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NS, namespace: NS}
spec: {maxUnavailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow, selector: {matchLabels: {app: a}}}`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{spec: {maxUnavailable: 100%, unhealthyPodEvictionPolicy: null}}`,
			repaired: `{metadata: {labels: {x: "1"}}, spec: {maxUnavailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow, selector: {matchLabels: {app: a}}}}`,
			second: `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NS, namespace: NS}
spec: {minAvailable: 1, selector: {matchLabels: {app: b}}}`,
			updated: `{spec: {minAvailable: 1, maxUnavailable: null, unhealthyPodEvictionPolicy: null, selector: {matchLabels: {app: b}}}}`,
		},
		{
			name: "owns a HorizontalPodAutoscaler",
			first: `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NS, namespace: NS}
spec:
  maxReplicas: 3
  minReplicas: 2
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{spec: {maxReplicas: 30, metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 1}}}]}}`,
			repaired: `{metadata: {labels: {x: "1"}}, spec: {maxReplicas: 3, metrics: [{resource: {name: cpu}}]}}`,
			second: `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NS, namespace: NS}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, behavior: {scaleDown: {stabilizationWindowSeconds: 5}}}`,
			updated: `{spec: {maxReplicas: 4, minReplicas: 1, behavior: {scaleDown: {stabilizationWindowSeconds: 5}}}}`,
		},
	})
}
