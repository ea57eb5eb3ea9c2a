package main

// devices is the dashboard of GPU agents: use, saturation and errors of their devices.
func devices() Dashboard {
	const (
		byDevice = `{instance=~"$instance", device=~"$device"}`
		byCell   = `{instance=~"$instance", cell=~"$cell"}`
		byAgent  = `{instance=~"$instance"}`
	)
	return Dashboard{
		UID: "exoswarm-devices", Title: "Exoswarm devices and swarms",
		Description: "Devices of GPU agents, and the shards that they serve.",
		Variables: []Variable{
			{"instance", `exoswarm_device_info`}, {"device", "exoswarm_device_info"}, {"cell", "exoswarm_swarm_shards"},
		},
		Rows: []Row{
			{"Use", []Panel{
				{
					Title: "Busy share", Kind: "timeseries", Unit: "percentunit",
					Description: "Share of time in which some shard had work on the device.",
					Queries: []Query{
						q("rate(exoswarm_gpuagent_device_busy_seconds_total"+byDevice+"[$__rate_interval])",
							"{{instance}} {{device}}"),
					},
				},
				{
					Title: "Kernel busy share", Kind: "timeseries", Unit: "percentunit", MayBeEmpty: noSensors,
					Description: "Share of time in which a kernel ran, as the driver measures it.",
					Queries:     []Query{q("exoswarm_device_busy_ratio"+byDevice, "{{instance}} {{device}}")},
				},
				{
					Title: "Time by stage", Kind: "timeseries", Unit: "percentunit", Stacked: true,
					Description: "Share of each stage in the time of all batches. Stages overlap between batches.",
					Queries: []Query{
						q("sum by (stage) (rate(exoswarm_swarm_stage_seconds_total"+byCell+"[$__rate_interval]))"+
							" / on () group_left () "+
							"sum(rate(exoswarm_swarm_stage_seconds_total"+byCell+"[$__rate_interval]))",
							"{{stage}}"),
					},
				},
				{
					Title: "Agent steps", Kind: "timeseries", Unit: "ops", Description: "Steps of agents per second.",
					Queries: []Query{q(rate("exoswarm_swarm_steps_total"+byCell, "cell"), "{{cell}}")},
				},
				{
					Title: "Observations", Kind: "timeseries", Unit: "ops",
					Description: "Applied observations per second.",
					Queries:     []Query{q(rate("exoswarm_swarm_observations_total"+byCell, "cell"), "{{cell}}")},
				},
				{
					Title: "Time of an entry", Kind: "heatmap", Unit: "s", Exemplars: true,
					Description: "Time in which an entry is applied, as entries per second.",
					Queries: []Query{
						q("sum by (le) (rate(exoswarm_swarm_apply_seconds_bucket"+byCell+"[$__rate_interval]))",
							"{{le}}"),
					},
				},
				{
					Title: "99 % of entries", Kind: "timeseries", Unit: "s", Exemplars: true, Description: "By cell.",
					Queries: []Query{q(quantile(0.99, "exoswarm_swarm_apply_seconds"+byCell, "cell"), "{{cell}}")},
				},
				{
					Title: "Decisions", Kind: "timeseries", Unit: "ops", Stacked: true,
					Description: "Decisions of groups per second by candidate, and votes that met no rule.",
					Queries: []Query{
						q(rate("exoswarm_swarm_decisions_total"+byCell, "cell, candidate"), "{{cell}} {{candidate}}"),
						q(rate("exoswarm_swarm_undecided_total"+byCell, "cell"), "{{cell}} undecided"),
					},
				},
				{
					Title: "Votes", Kind: "timeseries", Unit: "ops", Stacked: true,
					Description: "Votes of agents per second by candidate.",
					Queries: []Query{
						q(rate("exoswarm_swarm_votes_total"+byCell, "cell, candidate"), "{{cell}} {{candidate}}"),
					},
				},
				{
					Title: "Kernels", Kind: "timeseries", Unit: "ops", Description: "Launches per second.",
					Queries: []Query{
						q(rate("exoswarm_device_kernel_launches_total"+byDevice, "instance, device"),
							"{{instance}} {{device}}"),
					},
				},
				{
					Title: "Copies", Kind: "timeseries", Unit: "Bps",
					Description: "Bytes per second from host memory to the device (in) and back (out).",
					Queries: []Query{
						q(rate("exoswarm_device_copied_bytes_total"+byDevice, "instance, device, direction"),
							"{{instance}} {{device}} {{direction}}"),
					},
				},
				{
					Title: "Batch", Kind: "timeseries", Unit: "short",
					Description: "Mean observations of a batch, and the limit of a shard.",
					Queries: []Query{
						q(rate("exoswarm_swarm_batch_observations_sum"+byCell, "cell")+" / "+
							rate("exoswarm_swarm_batch_observations_count"+byCell, "cell"), "{{cell}} mean"),
						q(
							"sum by (cell) (exoswarm_swarm_batch_limit"+byCell+") / sum by (cell) "+
								"(exoswarm_swarm_shards"+byCell+")",
							"{{cell}} limit",
						),
					},
				},
			}},
			{"Saturation", []Panel{
				{
					Title: "Device memory", Kind: "timeseries", Unit: "bytes",
					Description: "Open buffers, the size, and the weights of language models. Weights in pinned " +
						"memory and in files pass through the device in each step.",
					Queries: []Query{
						q("exoswarm_device_memory_in_use_bytes"+byDevice, "{{instance}} {{device}} in use"),
						q("exoswarm_device_memory_cached_bytes"+byDevice, "{{instance}} {{device}} cached"),
						q("exoswarm_device_memory_size_bytes"+byDevice, "{{instance}} {{device}} size"),
						q("exoswarm_model_bytes"+byDevice, "{{instance}} {{device}} weights in {{place}}"),
					},
				},
				{
					Title: "Shards", Kind: "timeseries", Unit: "short", Stacked: true,
					Description: "What agents do with them.",
					Queries:     []Query{q("sum by (state) (exoswarm_gpuagent_assignments"+byAgent+")", "{{state}}")},
				},
				{
					Title: "Agents and groups", Kind: "timeseries", Unit: "short",
					Description: "Of the shards that are served.",
					Queries: []Query{
						q("sum by (cell) (exoswarm_swarm_agents"+byCell+")", "{{cell}} agents"),
						q("sum by (cell) (exoswarm_swarm_groups"+byCell+")", "{{cell}} groups"),
					},
				},
				{
					Title: "Log lag", Kind: "timeseries", Unit: "short",
					Description: "Entries that are not applied yet.",
					Queries:     []Query{q("sum by (cell) (exoswarm_swarm_lag_entries"+byCell+")", "{{cell}}")},
				},
				{
					Title: "Oldest entry", Kind: "timeseries", Unit: "s",
					Description: "Age of the oldest entry that is not applied yet.",
					Queries:     []Query{q("max by (cell) (exoswarm_swarm_lag_seconds"+byCell+")", "{{cell}}")},
				},
				{
					Title: "Replays", Kind: "timeseries", Unit: "short",
					Description: "Entries that are left to replay.",
					Queries: []Query{
						q("sum by (cell) (exoswarm_swarm_replay_target_entries"+byCell+
							" - exoswarm_swarm_replay_position_entries"+byCell+")", "{{cell}}"),
					},
				},
				{
					Title: "Temperature", Kind: "timeseries", Unit: "celsius", MayBeEmpty: noSensors,
					Description: "Of the chip.",
					Queries:     []Query{q("exoswarm_device_temperature_celsius"+byDevice, "{{instance}} {{device}}")},
				},
				{
					Title: "Power", Kind: "timeseries", Unit: "watt", MayBeEmpty: noSensors,
					Description: "Of the board: now, and as the mean of the energy that it has used.",
					Queries: []Query{
						q("exoswarm_device_power_watts"+byDevice, "{{instance}} {{device}} now"),
						q(rate("exoswarm_device_energy_joules_total"+byDevice, "instance, device"),
							"{{instance}} {{device}} mean"),
					},
				},
				{
					Title: "Clocks", Kind: "timeseries", Unit: "hertz", MayBeEmpty: noSensors,
					Description: "Of the multiprocessors and of the memory.",
					Queries: []Query{
						q("exoswarm_device_clock_hertz"+byDevice, "{{instance}} {{device}} {{domain}}"),
					},
				},
				{
					Title: "Clocks held down", Kind: "timeseries", Unit: "short", Description: "By reason.",
					MayBeEmpty: noSensors + ", or no clock is held down",
					Queries:    []Query{q("exoswarm_device_throttled"+byDevice, "{{instance}} {{device}} {{reason}}")},
				},
			}},
			{"Errors", []Panel{
				{
					Title: "Level", Kind: "state-timeline", Unit: "short",
					Description: "0 normal, 1 reduced, 2 the host serves, 3 emergency.",
					Queries:     []Query{q("exoswarm_gpuagent_level"+byDevice, "{{instance}} {{device}}")},
				},
				{
					Title: "Errors by class", Kind: "timeseries", Unit: "ops", MayBeEmpty: noFailure,
					Description: "Errors of devices under shards.",
					Queries: []Query{q(rate("exoswarm_gpuagent_device_errors_total"+byDevice, "device, class"),
						"{{device}} {{class}}")},
				},
				{
					Title: "Rejected entries and dropped observations", Kind: "timeseries", Unit: "ops",
					Description: "Entries that were answered with an error, and observations that the " +
						"specification drops.",
					Queries: []Query{
						q(rate("exoswarm_swarm_rejected_entries_total"+byCell, "cell"), "{{cell}} rejected"),
						q(
							rate("exoswarm_swarm_dropped_observations_total"+byCell, "cell, reason"),
							"{{cell}} {{reason}}",
						),
					},
				},
				{
					Title: "Checkpoints", Kind: "timeseries", Unit: "ops", Description: "By outcome.",
					Queries: []Query{q(rate("exoswarm_swarm_checkpoints_total"+byCell, "cell, outcome"),
						"{{cell}} {{outcome}}")},
				},
				{
					Title: "Memory errors", Kind: "timeseries", Unit: "short", MayBeEmpty: noSensors,
					Description: "Since the driver was loaded.",
					Queries: []Query{q("exoswarm_device_memory_errors_total"+byDevice+
						" - exoswarm_device_memory_errors_total"+byDevice+" offset 1h", "{{instance}} "+
						"{{device}} {{kind}}")},
				},
				{
					Title: "Xids", Kind: "timeseries", Unit: "short", MayBeEmpty: noSensors,
					Description: "Critical errors that the driver has reported, by their Xid.",
					Queries: []Query{
						q("sum by (instance, device, xid) (increase(exoswarm_device_xid_errors_total"+byDevice+
							"[$__rate_interval])) > 0", "{{instance}} {{device}} {{xid}}"),
					},
				},
				{
					Title: "Lost leases", Kind: "timeseries", Unit: "short",
					Description: "Leases of shards that agents lost while they had them.",
					Queries: []Query{
						q("sum by (instance) (increase(exoswarm_swarm_leases_lost_total"+byAgent+"[$__rate_interval]))",
							"{{instance}}"),
					},
				},
				{
					Title: "Residency", Kind: "timeseries", Unit: "ops", MayBeEmpty: "no swarm has residency gpu",
					Description: "Comparisons of pages, and of layers of models, with the device, and comparisons " +
						"that found other bytes.",
					Queries: []Query{
						q(rate("exoswarm_swarm_residency_claims_total"+byCell, "cell"), "{{cell}} compared"),
						q(rate("exoswarm_swarm_residency_violations_total"+byCell, "cell"), "{{cell}} violated"),
						q(rate("exoswarm_model_residency_claims_total"+byAgent, "instance"),
							"{{instance}} models compared"),
						q(rate("exoswarm_model_residency_violations_total"+byAgent, "instance"),
							"{{instance}} models violated"),
					},
				},
			}},
		},
	}
}
