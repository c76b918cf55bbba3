import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import type { ClipboardEvent, DragEvent } from "react";
import { type Client, type DataOf, type Place, request } from "../api.ts";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { Act, Opens } from "./act.tsx";
import { Loading, Notice, Problem } from "./page.tsx";

export type Image = DataOf<Client["app"]["images"]["list"]["query"]>["images"][number];

/** Twice the width of a mail: sharp on fine screens. */
const MAX_WIDTH = 1_200;
const QUALITY = 0.85;
/** A canvas keeps the first frame of those that may be animated. */
const RESIZED = ["image/jpeg", "image/png"];
const TYPES = [...RESIZED, "image/gif", "image/webp"];

/** The image with the width of a mail, or as it is where that is smaller. The service refuses what no canvas can read. */
async function resized(file: File): Promise<Blob> {
  const picture = RESIZED.includes(file.type) && (await createImageBitmap(file).catch(() => false as const));
  if (!picture || picture.width <= MAX_WIDTH) return file;
  const canvas = document.createElement("canvas");
  canvas.width = MAX_WIDTH;
  canvas.height = Math.max(1, Math.round((picture.height * MAX_WIDTH) / picture.width));
  canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close();
  const made = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, file.type, QUALITY));
  return made && made.size < file.size ? made : file;
}

/** The files of images in what was dropped or pasted; none where it is something else. */
export const imagesIn = (data: DataTransfer | null): File[] =>
  [...(data?.files ?? [])].filter(({ type }) => TYPES.includes(type));

/** Uploads a file, in the size of a mail. @throws {HttpRefusal} */
export const uploadImage = async (place: Place, file: File): Promise<Image> =>
  request("POST", `/images?name=${encodeURIComponent(file.name)}`, await resized(file), place);

/** Uploads files one after the other; the last one is the answer. @param onEach called with each once it is uploaded */
export function useUpload(onEach?: (image: Image) => void) {
  const { team, environment, base } = useWorkspace();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async (files: readonly File[]) => {
      let image: Image | undefined;
      for (const file of files) {
        image = await uploadImage({ team, environment }, file);
        onEach?.(image);
      }
      return image;
    },
    onSettled: () => queries.invalidateQueries({ queryKey: [base, "images"] }),
  });
}

/** A button that opens the picker. */
export const PickImage = ({
  label = "Choose an image",
  onPick,
}: {
  label?: string;
  onPick: (image: Image) => void;
}) => (
  <Opens title={label} heading="Images">
    {(close) => (
      <Picker
        onPick={(image) => {
          close();
          onPick(image);
        }}
      />
    )}
  </Opens>
);

function Picker({ onPick }: { onPick: (image: Image) => void }) {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const { mutate, isPending, error } = useUpload();
  const usage = useData(["images", "usage"], () => client.app.images.usage.query({}));
  const list = useInfiniteQuery({
    queryKey: [base, "images", "list"],
    queryFn: async ({ pageParam: before }) => (await client.app.images.list.query({ query: { before } })).data,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ images, has_more }) => (has_more ? images.at(-1)?.id : undefined),
  });
  // One file is for the place that asked; of several the member picks.
  const upload = (files: readonly File[]) =>
    files.length > 0 && mutate(files, { onSuccess: (image) => files.length === 1 && image && onPick(image) });
  const take = (event: DragEvent | ClipboardEvent, data: DataTransfer | null) => {
    event.preventDefault();
    upload(imagesIn(data));
  };
  const images = list.data?.pages.flatMap((page) => page.images) ?? [];
  return (
    <section
      className="stack"
      aria-label="Images of the team"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => mayWrite && take(event, event.dataTransfer)}
      onPaste={(event) => mayWrite && take(event, event.clipboardData)}
    >
      {mayWrite && (
        <label className="field">
          Upload PNG, JPEG, GIF or WebP of up to 5 MB: choose files, drop them here or paste them
          <input
            type="file"
            multiple
            accept={TYPES.join()}
            disabled={isPending}
            onChange={({ target }) => {
              upload([...(target.files ?? [])]);
              target.value = "";
            }}
          />
        </label>
      )}
      <Notice>{isPending && "Uploading…"}</Notice>
      <Problem error={error ?? list.error} />
      {list.isPending && <Loading />}
      {list.isSuccess && images.length === 0 && <p className="empty">No images yet.</p>}
      <ul className="pictures">
        {images.map((image) => (
          <li key={image.id}>
            <button type="button" className="plain" onClick={() => onPick(image)}>
              <img src={image.url} alt="" loading="lazy" />
              {image.name || "Unnamed"}
            </button>
            <span className="muted">
              {image.width} × {image.height}
            </span>{" "}
            {mayWrite && <Delete image={image} />}
          </li>
        ))}
      </ul>
      {list.hasNextPage && (
        <button type="button" disabled={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
          More
        </button>
      )}
      <p className="muted">
        {usage.count.toLocaleString()} of {usage.max_count.toLocaleString()} images, {Math.ceil(usage.bytes / 1e6)} of{" "}
        {Math.round(usage.max_bytes / 1e6).toLocaleString()} MB
      </p>
    </section>
  );
}

function Delete({ image: { id, name } }: { image: Image }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  return (
    <Act
      title={`Delete ${name || "this image"}`}
      short="Delete"
      submit="Delete this image"
      kind="danger"
      note="The image is permanently deleted."
      act={async ({ although_used }) => {
        const body = { although_used: although_used === "on" };
        await client.app.images.remove.mutate({ params: { imageId: id }, body });
        await queries.invalidateQueries({ queryKey: [base, "images"] });
      }}
    >
      <label className="tick">
        <input type="checkbox" name="although_used" />
        <span>Delete it even if an email shows it: readers see a gap in its place, also in emails already sent</span>
      </label>
    </Act>
  );
}
