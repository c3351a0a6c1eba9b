import { availableParallelism, platform } from 'node:os';
import { moduleUrl } from '../base/module-url.ts';
import type { Settings } from '../settings.ts';
import type { TlsSettings } from '../smtp/listener.ts';
import { type DaemonDeps, orHandedOver, spoolDir } from './slices.ts';
import type { SmtpThreadData } from './smtp-thread.ts';

// The settings of the SMTP listeners.

/** Threads for SMTP sessions; only on Linux, because sharing their sockets works only there. */
export function sessionThreads(settings: Settings) {
  const data: SmtpThreadData = { spoolDir: spoolDir(settings) };
  return {
    count: platform() === 'linux' ? (settings.smtp.threads ?? defaultThreads(availableParallelism())) : 0,
    script: moduleUrl('./smtp-thread.ts', import.meta.url),
    own: data,
  };
}

/** From the figures of decision 0032: with two processors threads do not pay off; four saturate the main thread. */
function defaultThreads(cores: number): number {
  return cores < 3 ? 0 : Math.min(4, Math.floor(cores / 2));
}

export function listenerSettings(settings: Settings, deps: DaemonDeps, tls: TlsSettings | undefined) {
  const { smtp } = settings;
  return {
    hostname: settings.hostname,
    listen: orHandedOver('smtp', smtp.listen, deps),
    maxMessageBytes: smtp.max_message_bytes,
    maxRecipients: smtp.max_recipients,
    maxSessions: smtp.max_sessions,
    maxSessionsPerAddress: smtp.max_sessions_per_address,
    maxMessagesPerSession: smtp.max_messages_per_session,
    sessionTimeoutMs: smtp.session_timeout_s * 1000,
    commandTimeoutMs: smtp.command_timeout_s * 1000,
    idleTimeoutMs: smtp.idle_timeout_s * 1000,
    minDataRate: smtp.min_data_rate,
    slowAfterRefusals: smtp.slow_after_refusals,
    endAfterRefusals: smtp.end_after_refusals,
    maxReceived: smtp.max_received,
    bareNewline: smtp.bare_newline,
    keepsPostmaster: smtp.postmaster === '',
    maxBacklogPerAccount: smtp.max_backlog_per_account,
    maxLoopLagMs: smtp.max_loop_lag_ms,
    proxyProtocol: smtp.proxy_protocol,
    tls,
  };
}

/** The settings of submission; those of sessions are from `smtp` unless submission has its own. */
export function submissionSettings(
  settings: Settings,
  deps: DaemonDeps,
  { loopbackOnly, tls: certificate }: { readonly loopbackOnly: boolean; readonly tls: TlsSettings | undefined },
) {
  const { submission, outbound } = settings;
  return {
    ...listenerSettings(settings, deps, certificate),
    listen: orHandedOver('submission', submission.listen, deps),
    tlsListen: orHandedOver('submissions', submission.tls_listen, deps),
    loopbackOnly,
    requireTls: submission.require_tls,
    tracking: { opens: outbound.track_opens, clicks: outbound.track_clicks },
    maxRecipients: submission.max_recipients,
    maxBytesInData: submission.max_bytes_in_data,
    maxBadKeysPerMinute: submission.max_bad_keys_per_minute,
    maxAccountBytes: settings.accounts.max_bytes,
  };
}
