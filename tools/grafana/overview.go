package main

// Reasons for which a panel may be empty.
const (
	noFailure = "nothing has failed"
	noSensors = "no agent has a GPU with sensors"
)

// overview is the dashboard of the whole cluster: rates, errors and durations.
func overview() Dashboard {
	return Dashboard{
		UID: "exoswarm-overview", Title: "Exoswarm overview",
		Description: "Jobs, swarms, agents and NATS of a cluster of Exoswarm.",
		Rows: []Row{
			{"Now", []Panel{
				{
					Title: "Agents", Kind: "stat", Unit: "short",
					Description: "Agents in the registry that are not lost.",
					Queries: []Query{
						q(`sum(max by (pool, state) (exoswarm_cluster_agents{state!="lost"}))`, "agents"),
					},
				},
				{
					Title: "Jobs", Kind: "stat", Unit: "ops", Description: "Jobs that end as done, per second.",
					Queries: []Query{q("sum(rate(exoswarm_jobs_completed_total[$__rate_interval]))", "jobs")},
				},
				{
					Title: "Decisions", Kind: "stat", Unit: "ops", Description: "Decisions of stream jobs per second.",
					Queries: []Query{q("sum(rate(exoswarm_stream_decisions_total[$__rate_interval]))", "decisions")},
				},
				{
					Title: "Agent steps", Kind: "stat", Unit: "ops",
					Description: "Steps of agents of swarms per second.",
					Queries:     []Query{q("sum(rate(exoswarm_swarm_steps_total[$__rate_interval]))", "steps")},
				},
				{
					Title: "Late jobs", Kind: "stat", Unit: "percentunit",
					Description: "Share of the jobs of the last hour that began later than 32.8 s after their " +
						"submission. " +
						"The objective is 1 %.",
					Queries: []Query{q("max(pool:exoswarm_jobs_late:ratio_rate1h)", "late")},
				},
				{
					Title: "Slow entries", Kind: "stat", Unit: "percentunit",
					Description: "Share of the entries of the last hour that took longer than 0.41 s. The " +
						"objective is 1 %.",
					Queries: []Query{q("max(cell:exoswarm_swarm_slow:ratio_rate1h)", "slow")},
				},
			}},
			{"Jobs", []Panel{
				{
					Title: "Jobs by outcome", Kind: "timeseries", Unit: "ops",
					Description: "Ends and retries per second.",
					Queries: []Query{
						q(rate("exoswarm_jobs_completed_total", "kind"), "{{kind}} done"),
						q(rate("exoswarm_jobs_failed_total", "kind, code"), "{{kind}} failed: {{code}}"),
						q(rate("exoswarm_jobs_retries_total", "kind"), "{{kind}} retried"),
					},
				},
				{
					Title: "Wait in the queue", Kind: "timeseries", Unit: "s", Exemplars: true,
					Description: "Time from the submission of a job to its first start.",
					Queries: []Query{
						q(quantile(0.5, "exoswarm_jobs_queue_wait_seconds", "pool"), "{{pool}} median"),
						q(quantile(0.99, "exoswarm_jobs_queue_wait_seconds", "pool"), "{{pool}} 99 %"),
					},
				},
				{
					Title: "Jobs in the queue", Kind: "timeseries", Unit: "short", Stacked: true,
					Description: "By kind and state.",
					Queries: []Query{
						q("sum by (pool, kind, state) (max by (pool, kind, lane, state) (exoswarm_queue_jobs))",
							"{{pool}} {{kind}} {{state}}"),
					},
				},
				{
					Title: "Jobs without an agent, and dead letters", Kind: "timeseries", Unit: "short",
					Description: "Jobs of kinds that no agent handles, which wait without a limit, and jobs that " +
						"failed for good.",
					Queries: []Query{
						q("max by (pool, kind) (exoswarm_queue_unserved_jobs)", "{{pool}} {{kind}} without an agent"),
						q("max(exoswarm_dead_letters)", "dead letters"),
					},
				},
				{
					Title: "Oldest job", Kind: "timeseries", Unit: "s",
					Description: "Age of the oldest job of each pool.",
					Queries: []Query{
						q("max by (pool) (exoswarm_queue_oldest_seconds)", "{{pool}} in the queue"),
						q("max by (pool) (exoswarm_jobs_oldest_running_seconds)", "{{pool}} running"),
					},
				},
				{
					Title: "Slots", Kind: "timeseries", Unit: "short",
					Description: "Running jobs, and jobs that may run.",
					Queries: []Query{
						q("sum by (pool) (exoswarm_jobs_running)", "{{pool}} running"),
						q("sum by (pool) (exoswarm_jobs_slots)", "{{pool}} slots"),
					},
				},
				{
					Title: "Time of an attempt", Kind: "timeseries", Unit: "s", Exemplars: true,
					Description: "The 99th percentile by kind.",
					Queries:     []Query{q(quantile(0.99, "exoswarm_jobs_run_seconds", "kind"), "{{kind}}")},
				},
			}},
			{"Streams and swarms", []Panel{
				{
					Title: "Rows", Kind: "timeseries", Unit: "ops", Description: "Rows of stream jobs per second.",
					Queries: []Query{q(rate("exoswarm_stream_rows_total", "outcome"), "{{outcome}}")},
				},
				{
					Title: "From a row to its decision", Kind: "timeseries", Unit: "s",
					Description: "Time from the reading of a row to its decision.",
					Queries: []Query{
						q(quantile(0.5, "exoswarm_stream_decision_latency_seconds", ""), "median"),
						q(quantile(0.99, "exoswarm_stream_decision_latency_seconds", ""), "99 %"),
					},
				},
				{
					Title: "Shards", Kind: "timeseries", Unit: "short", Stacked: true,
					Description: "Shards by state. A waiting shard has no agent.",
					Queries:     []Query{q("max by (state) (exoswarm_shards)", "{{state}}")},
				},
				{
					Title: "Waiting entries", Kind: "timeseries", Unit: "short",
					Description: "Entries of all logs that are not answered, and entries that open shards have " +
						"not applied.",
					Queries: []Query{
						q("max(exoswarm_swarm_waiting_entries)", "not answered"),
						q("sum by (cell) (exoswarm_swarm_lag_entries)", "{{cell}} not applied"),
					},
				},
			}},
			{"Cluster", []Panel{
				{
					Title: "Agents by state", Kind: "timeseries", Unit: "short", Stacked: true,
					Description: "In the registry.",
					Queries:     []Query{q("max by (pool, state) (exoswarm_cluster_agents)", "{{pool}} {{state}}")},
				},
				{
					Title: "Demand", Kind: "timeseries", Unit: "short", Description: "What autoscaling goes by.",
					Queries: []Query{q("max by (pool) (exoswarm_scale_demand)", "{{pool}}")},
				},
				{
					Title: "Readiness", Kind: "state-timeline", Unit: "short",
					Description: "1: all checks of /readyz pass.",
					Queries: []Query{
						q("exoswarm_ready", "{{job}} {{instance}}"),
						q("exoswarm_cluster_up", "cluster as {{instance}} sees it"),
					},
				},
				{
					Title: "Checks of the doctor", Kind: "timeseries", Unit: "short", Description: "By result.",
					Queries: []Query{q("max by (status) (exoswarm_doctor_checks)", "{{status}}")},
				},
				{
					Title: "Store of NATS", Kind: "timeseries", Unit: "bytes", Stacked: true,
					Description: "Bytes by stream.",
					Queries:     []Query{q("max by (stream) (exoswarm_jetstream_bytes)", "{{stream}}")},
				},
				{
					Title: "Streams without a leader, replicas behind", Kind: "timeseries", Unit: "short",
					Description: "Above 0 for longer than an election, a server is missing.",
					Queries: []Query{
						q("sum(max by (stream) (exoswarm_jetstream_leaderless_streams))", "without a leader"),
						q("sum(max by (stream) (exoswarm_jetstream_replicas_behind))", "replicas behind"),
					},
				},
				{
					Title: "Connections to NATS", Kind: "timeseries", Unit: "short",
					Description: "Losses, and errors that no caller has waited for.",
					Queries: []Query{
						q("increase(exoswarm_nats_disconnects_total[$__rate_interval])", "{{instance}} lost"),
						q(rate("exoswarm_nats_errors_total", "reason"), "{{reason}}"),
						q(rate("exoswarm_nats_request_failures_total", "reason"), "requests: {{reason}}"),
					},
				},
				{
					Title: "Requests to NATS, and clocks", Kind: "timeseries", Unit: "s",
					Description: "99th percentile of the time of a request by operation, and the largest difference " +
						"of a clock from the server's.",
					Queries: []Query{
						q(quantile(0.99, "exoswarm_nats_request_seconds", "op"), "{{op}}"),
						q("max(abs(exoswarm_clock_offset_seconds))", "clock"),
					},
				},
				{
					Title: "Traffic with NATS", Kind: "timeseries", Unit: "Bps", Description: "By job and direction.",
					Queries: []Query{q(rate("exoswarm_nats_bytes_total", "job, direction"), "{{job}} {{direction}}")},
				},
				{
					Title: "Requests of the gateway", Kind: "timeseries", Unit: "ops",
					Description: "By operation and code.",
					MayBeEmpty:  "no client uses the gateway",
					Queries:     []Query{q(rate("exoswarm_gateway_requests_total", "op, code"), "{{op}} {{code}}")},
				},
				{
					Title: "Requests of jobs", Kind: "timeseries", Unit: "ops",
					Description: "HTTP requests by outcome.",
					Queries:     []Query{q(rate("exoswarm_egress_requests_total", "outcome"), "{{outcome}}")},
				},
				{
					Title: "Warnings and errors in logs", Kind: "timeseries", Unit: "ops",
					Description: "Lines by level.",
					Queries: []Query{q(rate(`exoswarm_log_messages_total{level=~"warn|error"}`, "job, level"),
						"{{job}} {{level}}")},
				},
				{
					Title: "Memory of processes", Kind: "timeseries", Unit: "bytes", Description: "Resident memory.",
					Queries: []Query{q(`process_resident_memory_bytes{job=~"exoswarm.*"}`, "{{job}} {{instance}}")},
				},
			}},
		},
	}
}
