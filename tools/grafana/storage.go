package main

// storage is the dashboard of the tiers that hold pages: device, host memory and disks.
func storage() Dashboard {
	const (
		byTier  = `{instance=~"$instance", tier=~"$tier"}`
		byAgent = `{instance=~"$instance"}`
		noTier  = "all pages fit into memory"
	)
	return Dashboard{
		UID: "exoswarm-tiers", Title: "Exoswarm tiers",
		Description: "Pages of swarms over the tiers: device, host memory and disks.",
		Variables: []Variable{
			{"instance", "exoswarm_swarm_pages"}, {"tier", "exoswarm_swarm_pages"},
		},
		Rows: []Row{
			{"Memory", []Panel{
				{
					Title: "Pages", Kind: "timeseries", Unit: "short", Stacked: true, Description: "By tier of memory.",
					Queries: []Query{q("sum by (tier) (exoswarm_swarm_pages"+byTier+")", "{{tier}}")},
				},
				{
					Title: "Used frames", Kind: "timeseries", Unit: "percentunit",
					Description: "Share of the frames of a tier.",
					Queries: []Query{q("1 - sum by (tier) (exoswarm_swarm_page_frames_free"+byTier+
						") / sum by (tier) (exoswarm_swarm_page_frames"+byTier+")", "{{tier}}")},
				},
				{
					Title: "Page faults", Kind: "timeseries", Unit: "percentunit",
					Description: "Share of the accesses to pages that were not in the tier.",
					Queries: []Query{q(rate("exoswarm_swarm_page_misses_total"+byTier, "tier")+" / ("+
						rate("exoswarm_swarm_page_hits_total"+byTier, "tier")+" + "+
						rate("exoswarm_swarm_page_misses_total"+byTier, "tier")+")", "{{tier}}")},
				},
				{
					Title: "Wait for pages", Kind: "timeseries", Unit: "s",
					Description: "99th percentile of accesses to pages that were not in the tier.",
					Queries: []Query{
						q(quantile(0.99, "exoswarm_swarm_page_wait_seconds"+byTier, "tier"), "{{tier}}"),
					},
				},
				{
					Title: "Copies of pages", Kind: "timeseries", Unit: "s", Description: "99th percentile, by target.",
					Queries: []Query{q(quantile(0.99, "exoswarm_swarm_page_copy_seconds"+byTier, "tier"), "{{tier}}")},
				},
				{
					Title: "Moves", Kind: "timeseries", Unit: "ops", MayBeEmpty: noTier,
					Description: "Pages per second between two tiers, the eight largest flows.",
					Queries: []Query{
						q("topk(8, "+rate("exoswarm_swarm_page_moves_total"+byAgent, "from, to, reason")+")",
							"{{from}} to {{to}}: {{reason}}"),
					},
				},
				{
					Title: "Prefetch", Kind: "timeseries", Unit: "ops",
					Description: "Pages that were fetched before an access, accessed there, and left before.",
					Queries: []Query{
						q(rate("exoswarm_swarm_prefetch_pages_total"+byTier, "tier"), "{{tier}} fetched"),
						q(rate("exoswarm_swarm_prefetch_used_total"+byTier, "tier"), "{{tier}} used"),
						q(rate("exoswarm_swarm_prefetch_wasted_total"+byTier, "tier"), "{{tier}} wasted"),
					},
				},
				{
					Title: "Queue of the prefetch", Kind: "timeseries", Unit: "short", Description: "Pages that wait.",
					Queries: []Query{
						q("sum(exoswarm_swarm_fetch_queue_pages"+byAgent+")", "waiting"),
						q(
							"sum(rate(exoswarm_swarm_fetches_forgotten_total"+byAgent+"[$__rate_interval]))",
							"forgotten per second",
						),
					},
				},
			}},
			{"Disks", []Panel{
				{
					Title: "Fill", Kind: "timeseries", Unit: "percentunit",
					Description: "Used part of a tier, and its trend over 24 hours.",
					Queries: []Query{
						q(
							"max by (instance, tier) (exoswarm_swarm_tier_fill_ratio"+byAgent+")",
							"{{instance}} {{tier}}",
						),
						q(
							"max by (instance, tier) "+
								"(predict_linear(exoswarm_swarm_tier_fill_ratio"+byAgent+"[6h], 24 * 3600))",
							"{{instance}} {{tier}} in 24 h",
						),
					},
				},
				{
					Title: "Stored bytes", Kind: "timeseries", Unit: "bytes", Description: "By tier on disk.",
					Queries: []Query{q("sum by (tier) (exoswarm_swarm_stored_bytes"+byAgent+")", "{{tier}}")},
				},
				{
					Title: "Compression", Kind: "timeseries", Unit: "short",
					Description: "Bytes in memory by bytes on disk.",
					Queries: []Query{
						q("avg by (tier) (exoswarm_swarm_stored_compression_ratio"+byAgent+")", "{{tier}}"),
					},
				},
				{
					Title: "Reads", Kind: "timeseries", Unit: "s", Description: "99th percentile.",
					Queries: []Query{
						q(quantile(0.99, "exoswarm_swarm_store_read_seconds"+byAgent, "tier"), "{{tier}}"),
					},
				},
				{
					Title: "Writes", Kind: "timeseries", Unit: "s",
					Description: "99th percentile, moves into the tier included.",
					Queries: []Query{
						q(quantile(0.99, "exoswarm_swarm_store_write_seconds"+byAgent, "tier"), "{{tier}}"),
					},
				},
				{
					Title: "Calls", Kind: "timeseries", Unit: "short",
					Description: "Reads and writes that run or wait.",
					Queries:     []Query{q("sum by (tier) (exoswarm_swarm_store_queue_calls"+byAgent+")", "{{tier}}")},
				},
				{
					Title: "Failures and open circuits", Kind: "timeseries", Unit: "short",
					Description: "Failed calls per second, and shards that do not use the tier.",
					Queries: []Query{
						q(rate("exoswarm_swarm_tier_failures_total"+byAgent, "tier"), "{{tier}} failures"),
						q(
							"sum by (tier) (exoswarm_swarm_tier_circuit_open_shards"+byAgent+")",
							"{{tier}} open circuits",
						),
					},
				},
				{
					Title: "Age of the last checkpoint", Kind: "timeseries", Unit: "s", Description: "By cell.",
					Queries: []Query{
						q("time() - max by (instance, cell) (exoswarm_swarm_checkpoint_timestamp_seconds"+byAgent+")",
							"{{instance}} {{cell}}"),
					},
				},
			}},
		},
	}
}
