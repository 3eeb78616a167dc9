import type {
  $Command,
  S3ClientResolvedConfig,
  ServiceInputTypes,
  ServiceOutputTypes,
} from '@aws-sdk/client-s3';

/** A command of the SDK, with its reply. */
export type S3Command<
  Input extends ServiceInputTypes,
  Output extends ServiceOutputTypes,
> = $Command<Input, Output, S3ClientResolvedConfig, ServiceInputTypes, ServiceOutputTypes>;

/** The one method of an `S3Client` that is used. */
export interface S3Calls {
  send<Input extends ServiceInputTypes, Output extends ServiceOutputTypes>(
    command: S3Command<Input, Output>,
    options: { readonly abortSignal: AbortSignal },
  ): Promise<Output>;
}
