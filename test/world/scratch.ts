import { startWorld } from '../support/world/world.ts';
const t = performance.now();
const w = await startWorld();
console.log('up', performance.now() - t, w.dir);
console.log(await w.network.must('dig', '+short', 'customer.org', 'MX'));
console.log(await w.mail.send('bob@there.example', 'Hello'));
console.log((await w.mail.arrived('it', (t) => t.includes('Hello'))).text);
await w.stop();
