import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { HOST_OPERATIONS } from '../../src/console/host/index.ts';
import { createAccount, createKey } from '../../src/store/rows/accounts.ts';
import { openStore } from '../../src/store/store.ts';
import { type Browser, createBrowser } from './console.ts';
import { createCaller, startDaemon, testSettings } from './daemon.ts';
import { createTestLog } from './log.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import { until } from './until.ts';

/** A daemon with two accounts, each with a domain and an endpoint, and an operator at its console. */
export async function startHost(given: Readonly<Record<string, string>> = {}) {
  const env = { POSTERN_INBOUND__OWNERSHIP: 'first', ...given };
  const running = await startDaemon(env);
  const settings = testSettings(running.dir, env);
  const store = await openStore(await openDatabase(settings, createTestLog()));
  const parts = { clock: systemClock, ids: createIds(systemClock) };
  const main = (await store.accounts.one({ number: 1 }))?.id ?? '';
  const second = (await createAccount(store, 'second', parts)).id;
  const secondCalls = createCaller(running.base, await createKey(store, second, 'k', parts));
  const hooks = { main: await startReceiver(), second: await startReceiver() };
  await running.api('/inbound/add-domain', { domain: 'in.test' });
  await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hooks.main.url });
  const browser = await enter();

  async function enter(): Promise<Browser> {
    const one = createBrowser(Number(new URL(running.base).port));
    await one.press(new URL((await running.daemon.enterLink()) ?? '').pathname);
    return one;
  }

  /** Calls an operation of the host as the operator; fails unless it answers what it declares. */
  async function host(name: string, params: object = {}, as = browser): Promise<any> {
    const { status, body, text } = await as.write(`/console/call/host/${name}`, params);
    if (status !== 200) throw new Error(`host/${name} answered ${status}: ${text}`);
    HOST_OPERATIONS.find(({ path }) => path === `/host/${name}`)?.returns.parse(body);
    // The accounts have added their domains and routes before any test.
    if (name === 'actions')
      return { ...body, actions: body.actions.filter(({ what }: any) => !/^(?:domain|route) added$/.test(what)) };
    return body;
  }

  /** Mail for an account, which waits until its endpoint answers 200. */
  async function waiting(hook: Receiver, api: typeof running.api, domain: string, count: number): Promise<void> {
    hook.answer({ status: 500, body: 'undefined method `id` for nil' });
    for (let n = 0; n < count; n++)
      await api('/inbound/send-raw', {
        raw_message: `From: a@sender.test\r\nSubject: ${n}\r\n\r\nHello.`,
        to: [`box-${n}@${domain}`],
        mail_from: 'a@sender.test',
        client_address: '192.0.2.1',
      });
    await until('each was tried', () => hook.requests.filter(({ method }) => method === 'POST').length >= count);
  }

  return {
    ...running,
    file: join(running.dir, 'journal.db'),
    store,
    main,
    second,
    secondApi: secondCalls.api,
    hooks,
    browser,
    enter,
    host,
    /** What an API key is answered at the same path. */
    byKey: (path: string, params: object = {}) => running.ask(path, params),
    /** What the operator is answered, whatever it is. */
    ask: (name: string, params: object = {}) => browser.write(`/console/call/host/${name}`, params),
    /** So much mail for the first account; whether it is tried by then is not said. */
    async mainGets(count: number) {
      const to = Array.from({ length: count }, (_, n) => `many-${n}@in.test`);
      for (let at = 0; at < count; at += 500)
        await running.api('/inbound/send-raw', {
          raw_message: 'From: a@sender.test\r\n\r\nHello.',
          to: to.slice(at, at + 500),
          mail_from: 'a@sender.test',
          client_address: '192.0.2.1',
        });
    },
    mainWaits: (count: number) => waiting(hooks.main, running.api, 'in.test', count),
    /** The second account's domain is there from its first mail on. */
    async secondWaits(count: number) {
      await secondCalls.api('/inbound/add-domain', { domain: 'second.test' });
      await secondCalls.api('/inbound/add-route', { domain: 'second.test', pattern: '*', url: hooks.second.url });
      await waiting(hooks.second, secondCalls.api, 'second.test', count);
    },
    async stop() {
      await store.close();
      await running.stop();
      await Promise.all([hooks.main.stop(), hooks.second.stop()]);
    },
  };
}

export type HostWorld = Awaited<ReturnType<typeof startHost>>;
