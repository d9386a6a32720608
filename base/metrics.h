/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and gauges of the process, and histograms of seconds, rendered as Prometheus text. All
 * series exist with value 0 from the start. Owned by main, given to who needs it; every function is
 * for any thread.
 *
 * A series is one line of METRICS: (NAME, family, labels or "", COUNTER or GAUGE, help). Series of
 * one family stand together and have the same help. Series per RPC method are
 * server/rpc_metrics.h's.
 */
#ifndef VARVE_BASE_METRICS_H
#define VARVE_BASE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS(X)                                                                                 \
    X(SEGMENT_SYNCS_SMALL, "varve_segment_syncs_total", "lane=\"small\"", COUNTER,                 \
      "Syncs of segment files that group commit or rotation asked for.")                           \
    X(SEGMENT_SYNCS_LARGE, "varve_segment_syncs_total", "lane=\"large\"", COUNTER,                 \
      "Syncs of segment files that group commit or rotation asked for.")                           \
    X(SEGMENT_SYNC_FAILURES, "varve_segment_sync_failures_total", "", COUNTER,                     \
      "Syncs that failed; each is final for its lane.")                                            \
    X(SEGMENT_ROTATIONS, "varve_segment_rotations_total", "", COUNTER,                             \
      "Segments that were full and gave way to the next.")                                         \
    X(SEGMENTS, "varve_segments", "", GAUGE, "Segment files in the store.")                        \
    X(SEGMENT_BYTES, "varve_segment_bytes", "", GAUGE, "Bytes of records in the segments.")        \
    X(BLOBS_WRITTEN, "varve_blobs_written_total", "", COUNTER,                                     \
      "Blobs that became durable and visible.")                                                    \
    X(BLOB_BYTES_WRITTEN, "varve_blob_bytes_written_total", "", COUNTER,                           \
      "Their bytes, uncompressed.")                                                                \
    X(ACTION_RESULTS_WRITTEN, "varve_action_results_written_total", "", COUNTER,                   \
      "Action results that became durable and visible.")                                           \
    X(RECORD_BYTES_APPENDED, "varve_record_bytes_appended_total", "", COUNTER,                     \
      "Bytes appended to segments, with headers and padding.")                                     \
    X(BLOBS_READ, "varve_blobs_read_total", "", COUNTER,                                           \
      "Blobs or parts of blobs that were read and verified.")                                      \
    X(BLOB_BYTES_READ, "varve_blob_bytes_read_total", "", COUNTER,                                 \
      "Bytes of blobs read, uncompressed.")                                                        \
    X(RECORDS_DAMAGED, "varve_records_damaged_total", "", COUNTER,                                 \
      "Records that failed their checks when read, or that the disk could not read.")              \
    X(RECORDS_UNREADABLE, "varve_records_unreadable_total", "", COUNTER,                           \
      "Of these the ones that somebody asked for and the disk could not read.")                    \
    X(BLOBS_FORGOTTEN, "varve_blobs_forgotten_total", "", COUNTER,                                 \
      "Entries removed because their record is damaged or was deleted.")                           \
    X(INDEX_ENTRIES, "varve_index_entries", "", GAUGE, "Blobs and action results in the index.")   \
    X(INDEX_BATCHES, "varve_index_batches_total", "", COUNTER,                                     \
      "Batches written to the index on disk.")                                                     \
    X(INDEX_WRITE_STALLS, "varve_index_write_stalls_total", "", COUNTER,                           \
      "Batches that RocksDB took 0.1 s or longer to take, since it could not keep up.")            \
    X(INDEX_FAILURES, "varve_index_failures_total", "", COUNTER,                                   \
      "Failures of the index on disk; it is caught up from the segments later.")                   \
    X(INDEX_QUEUE, "varve_index_queue_entries", "", GAUGE,                                         \
      "Entries that wait for the index on disk.")                                                  \
    X(INDEX_LOADING, "varve_index_loading", "", GAUGE,                                             \
      "1 while the index in memory is being loaded from the one on disk.")                         \
    X(INDEX_LOADED, "varve_index_loaded_entries", "", GAUGE,                                       \
      "Entries read from the index on disk since the start, to load the one in memory.")           \
    X(PENDING_SEQ_SMALL, "varve_pending_seq", "lane=\"small\"", GAUGE,                             \
      "Sequence number of the last record appended.")                                              \
    X(PENDING_SEQ_LARGE, "varve_pending_seq", "lane=\"large\"", GAUGE,                             \
      "Sequence number of the last record appended.")                                              \
    X(DURABLE_SEQ_SMALL, "varve_durable_seq", "lane=\"small\"", GAUGE,                             \
      "Sequence number up to which records are on disk.")                                          \
    X(DURABLE_SEQ_LARGE, "varve_durable_seq", "lane=\"large\"", GAUGE,                             \
      "Sequence number up to which records are on disk.")                                          \
    X(COMMIT_ROUNDS, "varve_commit_rounds_total", "", COUNTER, "Rounds of group commit.")          \
    X(WRITES_REFUSED_DISK_FULL, "varve_writes_refused_total", "reason=\"disk_full\"", COUNTER,     \
      "Writes refused, by reason.")                                                                \
    X(WRITES_REFUSED_FAILED, "varve_writes_refused_total", "reason=\"sync_failed\"", COUNTER,      \
      "Writes refused, by reason.")                                                                \
    X(WRITES_REFUSED, "varve_writes_refused_total", "reason=\"by_order\"", COUNTER,                \
      "Writes refused, by reason.")                                                                \
    X(READ_ONLY, "varve_read_only", "", GAUGE, "1 when writes are refused since a sync failed.")   \
    X(CAPACITY_BYTES, "varve_capacity_bytes", "", GAUGE,                                           \
      "What segment files may take; 0: as much as the disk has.")                                  \
    X(SEGMENT_FILE_BYTES, "varve_segment_file_bytes", "", GAUGE,                                   \
      "What segment files take, with what is allocated ahead.")                                    \
    X(DISK_FREE_BYTES, "varve_disk_free_bytes", "", GAUGE,                                         \
      "What is free on the disk of the data directory.")                                           \
    X(SEGMENTS_CONDEMNED, "varve_segments_condemned", "", GAUGE,                                   \
      "Evicted segments whose file stays while somebody reads it.")                                \
    X(EVICTION_MOVES_FAILED, "varve_eviction_moves_failed_total", "", COUNTER,                     \
      "Records that were in use and could not be appended afresh.")                                \
    X(EVICTION_VOUCHED_FORGOTTEN_BYTES, "varve_eviction_vouched_forgotten_bytes_total", "",        \
      COUNTER, "Bytes of records that went although they were used within --vouch.")               \
    X(SEGMENTS_EVICTED, "varve_segments_evicted_total", "", COUNTER,                               \
      "Segments evicted to keep within the capacity.")                                             \
    X(EVICTIONS_FAILED, "varve_evictions_failed_total", "", COUNTER,                               \
      "Times that a segment that must go could not be emptied; it is tried again.")                \
    X(SEGMENTS_GIVEN_UP, "varve_segments_given_up_total", "", COUNTER,                             \
      "Segments evicted although the disk could not read what they held.")                         \
    X(BLOBS_EVICTED, "varve_blobs_evicted_total", "", COUNTER,                                     \
      "Blobs and action results that went with their segment.")                                    \
    X(EVICTION_MOVED_BYTES, "varve_eviction_moved_bytes_total", "", COUNTER,                       \
      "Bytes of records appended afresh because they were in use.")                                \
    X(EVICTION_FORGOTTEN_BYTES, "varve_eviction_forgotten_bytes_total", "", COUNTER,               \
      "Bytes of live records that went with their segment.")                                       \
    X(RETENTION_SECONDS, "varve_retention_seconds", "", GAUGE,                                     \
      "Age of the last segment that was evicted; 0 before the first.")                             \
    X(SCRUB_BYTES, "varve_scrub_bytes_total", "", COUNTER,                                         \
      "Bytes of records that the scrub has read and verified.")                                    \
    X(SCRUB_PASSES, "varve_scrub_passes_total", "", COUNTER,                                       \
      "Passes of the scrub through the whole store.")                                              \
    X(SCRUB_DAMAGED, "varve_scrub_damaged_total", "", COUNTER,                                     \
      "Records that the scrub has found damaged.")                                                 \
    X(SCRUB_LAST_PASS, "varve_scrub_last_pass_timestamp_seconds", "", GAUGE,                       \
      "When the last pass of the scrub ended, in seconds since 1970; 0 before the first.")         \
    X(FOLLOWERS, "varve_followers", "", GAUGE,                                                     \
      "Nodes that follow this one's log and were heard of lately.")                                \
    X(FEEDS_WAITING, "varve_feeds_waiting", "", GAUGE,                                             \
      "Followers' calls that wait for something new.")                                             \
    X(FEED_RECORDS, "varve_feed_records_total", "", COUNTER, "Records that followers were told.")  \
    X(FETCH_RECORDS, "varve_fetch_records_total", "", COUNTER,                                     \
      "Records that were sent whole to followers.")                                                \
    X(FETCH_BYTES, "varve_fetch_bytes_total", "", COUNTER, "Bytes of their blobs.")                \
    X(ACK_COPIES_WAITING, "varve_ack_copies_waiting", "", GAUGE,                                   \
      "Rounds of commit whose writes wait for copies on other nodes.")                             \
    X(ACK_COPIES_LATE, "varve_ack_copies_late_total", "", COUNTER,                                 \
      "Writes that did not get their copies in time.")                                             \
    X(ACK_COPIES_UNWAITED, "varve_ack_copies_unwaited_total", "", COUNTER,                         \
      "Writes acknowledged without the copies that --ack-copies asks for.")                        \
    X(ACK_COPIES_DEGRADED, "varve_ack_copies_degraded", "", GAUGE,                                 \
      "1 while writes are acknowledged without the copies that --ack-copies asks for.")            \
    X(PEERS, "varve_peers", "", GAUGE, "Nodes that this one follows, as configured.")              \
    X(PEERS_UP_TO_DATE, "varve_peers_up_to_date", "", GAUGE,                                       \
      "Of them, those whose log has been followed to its end.")                                    \
    X(PEER_LAG_RECORDS, "varve_peer_lag_records", "", GAUGE,                                       \
      "Records of the peers' logs that are not dealt with and durable here; of all peers.")        \
    X(PEER_LAG_BYTES, "varve_peer_lag_bytes", "", GAUGE, "About how many bytes of log that is.")   \
    X(PEER_LAG_SECONDS, "varve_peer_lag_seconds", "", GAUGE,                                       \
      "Since this node was last up to date with the peer for which that is longest ago.")          \
    X(PEER_BLOBS_FETCHED, "varve_peer_blobs_fetched_total", "", COUNTER,                           \
      "Blobs fetched from peers, verified and stored.")                                            \
    X(PEER_BYTES_FETCHED, "varve_peer_bytes_fetched_total", "", COUNTER, "Their bytes.")           \
    X(PEER_BLOBS_SKIPPED, "varve_peer_blobs_skipped_total", "", COUNTER,                           \
      "Blobs told by a peer that it no longer had, or that do not fit here.")                      \
    X(PEER_ACTIONS_TAKEN, "varve_peer_action_results_total", "result=\"taken\"", COUNTER,          \
      "Action results told by peers, by outcome.")                                                 \
    X(PEER_ACTIONS_OLDER, "varve_peer_action_results_total", "result=\"older\"", COUNTER,          \
      "Action results told by peers, by outcome.")                                                 \
    X(PEER_ACTIONS_INCOMPLETE, "varve_peer_action_results_total", "result=\"incomplete\"",         \
      COUNTER, "Action results told by peers, by outcome.")                                        \
    X(PEER_FORGETS, "varve_peer_deletions_total", "", COUNTER,                                     \
      "Deletions told by peers and carried out here.")                                             \
    X(PEER_LIES, "varve_peer_lies_total", "", COUNTER,                                             \
      "Times that a peer sent what cannot be or is not what it says.")                             \
    X(PEER_FAILURES, "varve_peer_failures_total", "", COUNTER,                                     \
      "Times that following a peer was broken off, to be tried again.")                            \
    X(READ_REPAIRS_FOUND, "varve_read_repairs_total", "result=\"found\"", COUNTER,                 \
      "Blobs and action results that were not here and asked of peers, by outcome.")               \
    X(READ_REPAIRS_ABSENT, "varve_read_repairs_total", "result=\"absent\"", COUNTER,               \
      "Blobs and action results that were not here and asked of peers, by outcome.")               \
    X(RECOVERED_RECORDS, "varve_recovered_records_total", "", COUNTER,                             \
      "Records found behind the index's checkpoint at start.")                                     \
    X(RECOVERY_TAILS_CUT, "varve_recovery_tails_cut_total", "", COUNTER,                           \
      "Segments whose torn tail was cut at start.")                                                \
    X(RECOVERY_ENTRIES_DROPPED, "varve_recovery_entries_dropped_total", "", COUNTER,               \
      "Index entries whose bytes are gone.")                                                       \
    X(UPLOADS_OPEN, "varve_uploads_open", "", GAUGE,                                               \
      "Unfinished uploads that are kept for resumption or in progress.")                           \
    X(UPLOADS_JOINED, "varve_uploads_joined_total", "", COUNTER,                                   \
      "Uploads that waited for another upload of the same blob.")                                  \
    X(UPLOADS_EARLY, "varve_uploads_answered_early_total", "", COUNTER,                            \
      "Uploads answered before their end because the blob is there.")                              \
    X(UPLOADS_EXPIRED, "varve_uploads_expired_total", "", COUNTER,                                 \
      "Unfinished uploads dropped after their keep time.")                                         \
    X(ACTION_HITS, "varve_action_results_total", "result=\"hit\"", COUNTER,                        \
      "GetActionResult by outcome.")                                                               \
    X(ACTION_MISSES, "varve_action_results_total", "result=\"miss\"", COUNTER,                     \
      "GetActionResult by outcome.")                                                               \
    X(ACTION_INCOMPLETE, "varve_action_results_total", "result=\"incomplete\"", COUNTER,           \
      "GetActionResult by outcome.")                                                               \
    X(CAS_FOUND, "varve_find_missing_total", "result=\"present\"", COUNTER,                        \
      "Digests asked by FindMissingBlobs, by outcome.")                                            \
    X(CAS_MISSING, "varve_find_missing_total", "result=\"missing\"", COUNTER,                      \
      "Digests asked by FindMissingBlobs, by outcome.")                                            \
    X(CAS_FOUND_ELSEWHERE, "varve_find_missing_elsewhere_total", "", COUNTER,                      \
      "Of the digests that were present, those that only a peer has so far.")                      \
    X(CALLS_LIVE, "varve_calls_live", "", GAUGE, "RPCs in progress.")                              \
    X(CALLS_REFUSED, "varve_calls_refused_total", "", COUNTER,                                     \
      "RPCs refused because too many were in progress or the server drains.")                      \
    X(CALLS_CUT_OFF, "varve_calls_cut_off_total", "", COUNTER,                                     \
      "RPCs that waited for their client for long and gave way to others.")                        \
    X(CALLS_SLOW, "varve_calls_slow_total", "", COUNTER,                                           \
      "RPCs and requests to the cache over HTTP that took longer than --slow-call.")               \
    X(BUDGET_USED, "varve_request_bytes_in_flight", "", GAUGE,                                     \
      "Bytes of requests held in memory.")                                                         \
    X(BUDGET_WAITING, "varve_calls_waiting_for_budget", "", GAUGE,                                 \
      "RPCs that wait until memory for their next message is free.")                               \
    X(BUDGET_MAX, "varve_request_bytes_max", "", GAUGE,                                            \
      "What they may take before clients have to wait: --request-memory.")                         \
    X(BUFFERS_IN_USE, "varve_buffers_in_use", "", GAUGE, "Pooled 1 MiB buffers in use.")           \
    X(READ_ONLY_BY_ORDER, "varve_read_only_by_order", "", GAUGE,                                   \
      "1 while writes are refused by order of varve admin read-only.")                             \
    X(CONNECTIONS_RESET, "varve_connections_reset_total", "", COUNTER,                             \
      "Connections of gRPC closed because calls were given up on them as fast as they began.")     \
    X(LIMITED_CALLS, "varve_limited_total", "reason=\"calls\"", COUNTER,                           \
      "Calls, requests and connections refused for a limit, by reason.")                           \
    X(LIMITED_MEMORY, "varve_limited_total", "reason=\"memory\"", COUNTER,                         \
      "Calls, requests and connections refused for a limit, by reason.")                           \
    X(LIMITED_CALLS_RATE, "varve_limited_total", "reason=\"calls_per_second\"", COUNTER,           \
      "Calls, requests and connections refused for a limit, by reason.")                           \
    X(LIMITED_BYTES_RATE, "varve_limited_total", "reason=\"bytes_per_second\"", COUNTER,           \
      "Calls, requests and connections refused for a limit, by reason.")                           \
    X(LIMITED_CONNECTIONS, "varve_limited_total", "reason=\"connections\"", COUNTER,               \
      "Calls, requests and connections refused for a limit, by reason.")                           \
    X(LIMITED_USERS, "varve_limited_users", "", GAUGE,                                             \
      "Users and addresses that are known for their limits.")                                      \
    X(HTTP_CLOSED_ADDRESS, "varve_http_closed_total", "reason=\"address\"", COUNTER,               \
      "Connections of HTTP closed, and requests sent away, so that others get in, by reason.")     \
    X(HTTP_CLOSED_IDLE, "varve_http_closed_total", "reason=\"idle\"", COUNTER,                     \
      "Connections of HTTP closed, and requests sent away, so that others get in, by reason.")     \
    X(HTTP_CLOSED_ROOM, "varve_http_closed_total", "reason=\"room\"", COUNTER,                     \
      "Connections of HTTP closed, and requests sent away, so that others get in, by reason.")     \
    X(HTTP_CLOSED_SLOW, "varve_http_closed_total", "reason=\"slow\"", COUNTER,                     \
      "Connections of HTTP closed, and requests sent away, so that others get in, by reason.")     \
    X(HTTP_WAITED_IN_VAIN, "varve_http_closed_total", "reason=\"waited\"", COUNTER,                \
      "Connections of HTTP closed, and requests sent away, so that others get in, by reason.")     \
    X(BUFFERS_MAX, "varve_buffers_max", "", GAUGE, "How many there may be: --buffers.")            \
    X(ACCESS_UNAUTHENTICATED, "varve_access_denied_total", "reason=\"unauthenticated\"", COUNTER,  \
      "Requests refused for who asked, by reason.")                                                \
    X(ACCESS_FORBIDDEN, "varve_access_denied_total", "reason=\"forbidden\"", COUNTER,              \
      "Requests refused for who asked, by reason.")                                                \
    X(ACCESS_LIMITED, "varve_access_denied_total", "reason=\"rate_limited\"", COUNTER,             \
      "Requests refused for who asked, by reason.")                                                \
    X(ACCESS_RELOADS, "varve_access_reloads_total", "result=\"ok\"", COUNTER,                      \
      "How often the access file was read again, by outcome.")                                     \
    X(ACCESS_RELOADS_FAILED, "varve_access_reloads_total", "result=\"failed\"", COUNTER,           \
      "How often the access file was read again, by outcome.")                                     \
    X(TLS_RELOADS, "varve_tls_reloads_total", "result=\"ok\"", COUNTER,                            \
      "How often the files of TLS were read again, by outcome.")                                   \
    X(TLS_RELOADS_FAILED, "varve_tls_reloads_total", "result=\"failed\"", COUNTER,                 \
      "How often the files of TLS were read again, by outcome.")                                   \
    X(TLS_EXPIRY, "varve_tls_certificate_expiry_timestamp_seconds", "", GAUGE,                     \
      "When the server's certificate expires, in seconds since 1970; 0 without TLS.")              \
    X(HTTP_ADDRESS_WAITS, "varve_http_address_waits_total", "", COUNTER,                           \
      "Requests over HTTP that waited because their address had its part of them in progress.")    \
    X(HTTP_OK, "varve_http_requests_total", "result=\"ok\"", COUNTER,                              \
      "Requests to the cache over HTTP, by outcome.")                                              \
    X(HTTP_MISSES, "varve_http_requests_total", "result=\"miss\"", COUNTER,                        \
      "Requests to the cache over HTTP, by outcome.")                                              \
    X(HTTP_REFUSED, "varve_http_requests_total", "result=\"refused\"", COUNTER,                    \
      "Requests to the cache over HTTP, by outcome.")                                              \
    X(HTTP_FAILED, "varve_http_requests_total", "result=\"failed\"", COUNTER,                      \
      "Requests to the cache over HTTP, by outcome.")                                              \
    X(HTTP_RECEIVED, "varve_http_bytes_total", "direction=\"received\"", COUNTER,                  \
      "Bytes of bodies of the cache over HTTP.")                                                   \
    X(HTTP_SENT, "varve_http_bytes_total", "direction=\"sent\"", COUNTER,                          \
      "Bytes of bodies of the cache over HTTP.")                                                   \
    X(CONNECTIONS, "varve_connections", "", GAUGE, "Connections open, gRPC and HTTP.")             \
    X(TIER_OK, "varve_tier_requests_total", "result=\"ok\"", COUNTER,                              \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_ABSENT, "varve_tier_requests_total", "result=\"absent\"", COUNTER,                      \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_DENIED, "varve_tier_requests_total", "result=\"denied\"", COUNTER,                      \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_BUSY, "varve_tier_requests_total", "result=\"busy\"", COUNTER,                          \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_TIMED_OUT, "varve_tier_requests_total", "result=\"timed_out\"", COUNTER,                \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_FAILED, "varve_tier_requests_total", "result=\"failed\"", COUNTER,                      \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_BROKEN_OFF, "varve_tier_requests_total", "result=\"broken_off\"", COUNTER,              \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_REFUSED, "varve_tier_requests_total", "result=\"not_asked\"", COUNTER,                  \
      "Requests to the bucket, by how they ended.")                                                \
    X(TIER_BYTES_SENT, "varve_tier_bytes_total", "direction=\"sent\"", COUNTER,                    \
      "Bytes of bodies to and from the bucket.")                                                   \
    X(TIER_BYTES_RECEIVED, "varve_tier_bytes_total", "direction=\"received\"", COUNTER,            \
      "Bytes of bodies to and from the bucket.")                                                   \
    X(TIER_UP, "varve_tier_up", "", GAUGE,                                                         \
      "1 while the bucket answers; 0 without one, and while it is left alone.")                    \
    X(TIER_CLOCK_SKEW, "varve_tier_clock_skew_seconds", "", GAUGE,                                 \
      "How far the bucket's clock is ahead, as far as it mattered.")                               \
    X(TIER_READS_FOUND, "varve_tier_reads_total", "result=\"found\"", COUNTER,                     \
      "Blobs and action results that were asked of the bucket, by outcome.")                       \
    X(TIER_READS_ABSENT, "varve_tier_reads_total", "result=\"absent\"", COUNTER,                   \
      "Blobs and action results that were asked of the bucket, by outcome.")                       \
    X(TIER_READS_FAILED, "varve_tier_reads_total", "result=\"failed\"", COUNTER,                   \
      "Blobs and action results that were asked of the bucket, by outcome.")                       \
    X(TIER_FINDS_PRESENT, "varve_tier_finds_total", "result=\"present\"", COUNTER,                 \
      "Blobs that FindMissingBlobs did not find here and looked for in the bucket.")               \
    X(TIER_FINDS_MISSING, "varve_tier_finds_total", "result=\"missing\"", COUNTER,                 \
      "Blobs that FindMissingBlobs did not find here and looked for in the bucket.")               \
    X(TIER_LISTED, "varve_tier_listed_total", "", COUNTER,                                         \
      "Objects that listings of the bucket have named.")                                           \
    X(TIER_MISMATCHES, "varve_tier_mismatches_total", "", COUNTER,                                 \
      "Objects of the bucket that were not what their names say; none was given out.")             \
    X(TIER_BLOBS, "varve_tier_uploaded_total", "kind=\"blob\"", COUNTER,                           \
      "Objects sent to the bucket, and deletions carried out there.")                              \
    X(TIER_ACTIONS, "varve_tier_uploaded_total", "kind=\"action_result\"", COUNTER,                \
      "Objects sent to the bucket, and deletions carried out there.")                              \
    X(TIER_DELETIONS, "varve_tier_uploaded_total", "kind=\"deletion\"", COUNTER,                   \
      "Objects sent to the bucket, and deletions carried out there.")                              \
    X(TIER_PACKS, "varve_tier_uploaded_total", "kind=\"pack\"", COUNTER,                           \
      "Objects sent to the bucket, and deletions carried out there.")                              \
    X(TIER_PACKED, "varve_tier_packed_total", "", COUNTER, "Blobs in the packs that were sent.")   \
    X(TIER_INDEXES, "varve_tier_pack_indexes_total", "", COUNTER,                                  \
      "Index objects of packs that were read from the bucket.")                                    \
    X(TIER_PRESENT, "varve_tier_present_total", "", COUNTER,                                       \
      "Blobs that were looked for in the bucket before they were sent, and were there.")           \
    X(TIER_REFRESHED, "varve_tier_refreshed_total", "", COUNTER,                                   \
      "Blobs that were in the bucket and sent again, before a rule removes them.")                 \
    X(TIER_LEFT_OUT, "varve_tier_left_out_total", "", COUNTER,                                     \
      "Blobs and action results that were gone, damaged or incomplete here when their turn came.") \
    X(TIER_ACTIONS_LEFT_OUT, "varve_tier_action_results_left_out_total", "", COUNTER,              \
      "Action results among them.")                                                                \
    X(TIER_RETRIES, "varve_tier_retries_total", "", COUNTER,                                       \
      "Attempts that failed and are made again.")                                                  \
    X(TIER_OVERTAKEN, "varve_tier_overtaken_total", "", COUNTER,                                   \
      "How often eviction has removed what was not in the bucket yet.")                            \
    X(TIER_HOLDS, "varve_tier_holds_eviction", "", GAUGE,                                          \
      "1 while something would be evicted and the bucket does not have it yet.")                   \
    X(TIER_SEQ_SMALL, "varve_tier_uploaded_seq", "lane=\"small\"", GAUGE,                          \
      "Sequence number up to which everything is in the bucket.")                                  \
    X(TIER_SEQ_LARGE, "varve_tier_uploaded_seq", "lane=\"large\"", GAUGE,                          \
      "Sequence number up to which everything is in the bucket.")                                  \
    X(TIER_BEHIND_SMALL, "varve_tier_behind_bytes", "lane=\"small\"", GAUGE,                       \
      "Bytes of log that are not in the bucket yet, about.")                                       \
    X(TIER_BEHIND_LARGE, "varve_tier_behind_bytes", "lane=\"large\"", GAUGE,                       \
      "Bytes of log that are not in the bucket yet, about.")                                       \
    X(START_TIME, "varve_start_time_seconds", "", GAUGE,                                           \
      "When the process started, in seconds since 1970.")                                          \
    X(STUCK, "varve_stuck", "", GAUGE, "1 while threads make no progress with what waits.")        \
    X(CONNECTIONS_SHED, "varve_connections_shed_total", "", COUNTER,                               \
      "Connections closed at once: too many, or descriptors ran out.")

enum metric {
#define METRIC_ENUM(name, family, labels, type, help) METRIC_##name,
    METRICS(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_COUNT
};

struct metrics {
    _Atomic int64_t values[METRIC_COUNT];
};

static inline void metrics_add(struct metrics *metrics, enum metric metric, int64_t amount)
{
    atomic_fetch_add_explicit(&metrics->values[metric], amount, memory_order_relaxed);
}

static inline void metrics_set(struct metrics *metrics, enum metric metric, int64_t value)
{
    atomic_store_explicit(&metrics->values[metric], value, memory_order_relaxed);
}

static inline int64_t metrics_get(struct metrics *metrics, enum metric metric)
{
    return atomic_load_explicit(&metrics->values[metric], memory_order_relaxed);
}

/* Growing text; memory failure is sticky and shows as data == NULL. Freed with free(data). */
struct metrics_text {
    char *data; /* NUL-terminated */
    size_t length, capacity;
    bool failed;
};

void metrics_text_printf(struct metrics_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void metrics_text_free(struct metrics_text *text);

/* All series with # HELP and # TYPE, in the order of METRICS. */
void metrics_render(struct metrics *metrics, struct metrics_text *text);

/*
 * Makes OpenMetrics 1.0 of Prometheus text, in place: a counter's family is named without its _total, and # EOF ends it. Once, at
 * the end.
 */
void metrics_text_to_open(struct metrics_text *text);

/* Seconds, in buckets 50 us, 100 us, 250 us, ... 10 s, +Inf. Zeroed memory is a valid empty one. */
enum { HISTOGRAM_BUCKETS = 18 };
struct histogram {
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS]; /* not cumulative; the last is +Inf */
    _Atomic uint64_t sum_ns;
};

/* The upper bound of a bucket; INT64_MAX of the last. */
int64_t histogram_bound_ns(size_t bucket);

void histogram_observe(struct histogram *histogram, int64_t duration_ns);
/*
 * family_bucket{labels,le="..."}, _sum and _count; no HELP or TYPE. labels without braces, may be
 * "".
 */
void histogram_render(struct histogram *histogram,
                      const char *family,
                      const char *labels,
                      struct metrics_text *text);

#endif
