/** A template says something that cannot be done, now or later. The message is for whoever wrote the template. */
export class FaultyTemplate extends Error {
  override readonly name = 'FaultyTemplate';
}
